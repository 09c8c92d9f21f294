use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Goal: the commands of the hour exist, and the shell can read all of them.
#[test]
fn recipes_and_examples_are_scripts() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let recipes = super::recipes(&readme);
    assert!(recipes.len() >= 3, "{recipes:?}");
    let list = fs::read_to_string(root().join("examples/README.md")).unwrap();
    let examples = examples(&root()).unwrap();
    assert!(examples.len() >= 6, "{examples:?}");
    let mut scripts: Vec<(String, String)> = recipes;
    for name in examples {
        let file = name.strip_prefix("examples/").unwrap();
        assert!(
            list.contains(&format!("]({file})")),
            "{name} is not in the list"
        );
        let text = fs::read_to_string(root().join(&name)).unwrap();
        scripts.push((name, text));
    }
    for (name, script) in scripts {
        let read = Command::new("bash").args(["-n", "-c", &script]).output();
        let output = read.unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        assert_eq!(output.stderr, b"", "{name}");
    }
}

fn hour() -> (tempfile::TempDir, Hour) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("logs")).unwrap();
    let hour = Hour {
        directory: directory.path().to_owned(),
        wishes: Options::default(),
        steps: Vec::new(),
    };
    (directory, hour)
}

/// Goal: a step fails with its name and its log, where any line of it fails; nothing of it keeps
/// running; and an untrusted measurement does not fail the step.
#[test]
fn a_step_tells_how_it_ended() {
    let (directory, mut hour) = hour();
    let place = directory.path();
    assert_eq!(hour.step_in(place, "good", "true"), Ok(()));
    assert_eq!(hour.step_in(place, "busy", "exit 4"), Ok(()));
    let script = "sleep 1000 & echo $! > pid\nfalse\ntrue";
    let sentence = hour.step_in(place, "bad", script).unwrap_err();
    assert!(sentence.starts_with("bad: exit status: 1"), "{sentence}");
    assert!(sentence.contains("logs/03.log"), "{sentence}");
    let pid = fs::read_to_string(place.join("pid")).unwrap();
    let process = Path::new("/proc").join(pid.trim()).join("cmdline");
    let begun = Instant::now();
    // A process that has ended and was not waited for has an empty command line.
    while fs::read(&process).is_ok_and(|words| !words.is_empty()) {
        assert!(begun.elapsed().as_secs() < 60, "{pid} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(hour.steps.len(), 2);
}

/// Goal: a script finds the binary that it built, and nothing of this build.
#[test]
fn scripts_have_an_environment_of_their_own() {
    let (directory, mut hour) = hour();
    let script = "test -z \"${CARGO_PKG_NAME:-}\"\n\
                  case $PATH in \"$CARGO_TARGET_DIR/release:\"*) ;; *) exit 1 ;; esac\n\
                  test \"$MILLPOND\" = \"$CARGO_TARGET_DIR/release/millpond\"";
    assert_eq!(hour.step_in(directory.path(), "look", script), Ok(()));
}

/// Goal: every wish is understood, and no other word is passed over.
#[test]
fn wishes_are_read() {
    let all = Options::of(&["--test", "--crates", "--plots", "--whole"]).unwrap();
    assert!(all.test && all.crates && all.plots && all.whole);
    assert_eq!(Options::of(&[]), Ok(Options::default()));
    assert!(Options::of(&["--tests"]).unwrap_err().contains("--tests"));
}
