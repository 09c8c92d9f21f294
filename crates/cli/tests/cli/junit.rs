//! `--junit`: what CI shows of a load and of a check against an earlier record; and the
//! workflow that uses both.

use crate::baseline::{with_a_regression, write};
use crate::support::{Server, millpond, peer, run};

/// Python's own reader of XML: names and the outcomes of all cases, in order.
fn cases(file: &str) -> Vec<String> {
    let script = "import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot().find('testsuite')
cases = suite.findall('testcase')
assert int(suite.get('tests')) == len(cases)
for outcome, count in [('failure', 'failures'), ('error', 'errors'), ('skipped', 'skipped')]:
    assert int(suite.get(count)) == len(suite.findall('testcase/' + outcome)), outcome
for case in cases:
    print(case.get('name') + ': ' + case[0].tag)";
    let output = peer("python3", &["-c", script, file]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Goal: an objective that is kept passes and one that is not fails, with status 3; the run itself and
/// its trustworthiness are cases too.
#[test]
fn objectives_are_cases() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&["plaintext"]);
    let file = directory.path().join("junit.xml").display().to_string();
    let words = [
        "load",
        "-n",
        "200",
        "-c",
        "2",
        "--junit",
        &file,
        "--slo",
        "errors<1%,rate>9999M",
    ];
    let finished = run(millpond(&words).arg(server.url("/plaintext")));
    // 4: beside other tests the generator may have measured itself.
    assert!([3, 4].contains(&finished.code()), "{finished:?}");
    let cases = cases(&file);
    assert_eq!(cases.len(), 4, "{cases:?}");
    assert_eq!(cases[0], "the run is complete: system-out");
    assert!(
        cases[1].starts_with("the measurement can be trusted: "),
        "{cases:?}"
    );
    assert!(
        cases[2].starts_with("errors") && cases[2].ends_with(": system-out"),
        "{cases:?}"
    );
    assert!(
        cases[3].starts_with("rate") && cases[3].ends_with(": failure"),
        "{cases:?}"
    );
}

/// Goal: a planted regression is the one failure among the candidates.
#[test]
fn candidates_are_cases() {
    let directory = tempfile::tempdir().unwrap();
    let (before, after) = with_a_regression();
    let earlier = write(directory.path(), "before.json", &before);
    let now = write(directory.path(), "after.json", &after);
    let file = directory.path().join("junit.xml").display().to_string();
    let words = ["report", &now, "--baseline", &earlier, "--junit", &file];
    let finished = run(&mut millpond(&words));
    assert_eq!(finished.code(), 3, "{finished:?}");
    let cases = cases(&file);
    let failed: Vec<&String> = cases
        .iter()
        .filter(|case| case.ends_with(": failure"))
        .collect();
    assert_eq!(
        failed,
        ["memory of mimalloc with pools: failure"],
        "{cases:?}"
    );
    assert!(cases.len() > 20, "{cases:?}");
    let finished = run(&mut millpond(&["report", &now, "--junit", &file]));
    assert_eq!(finished.code(), 2, "{finished:?}");
}

/// Goal: every command of the workflow is one that this build takes.
#[test]
fn the_workflow_s_commands_exist() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ci/workflow.yml");
    let text = std::fs::read_to_string(file).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    for line in text.lines() {
        let line = line.trim().trim_start_matches("- run: ");
        if !line.starts_with("millpond ") {
            continue;
        }
        // Parsed from left to right, so that a wrong flag comes before the help; what stands behind -- is
        // another program's.
        let (own, _) = line.split_once(" -- ").unwrap_or((line, ""));
        let script = own.trim_end_matches('&').replacen("millpond", "\"$0\"", 1) + " --help";
        let words = ["-c", &script, env!("CARGO_BIN_EXE_millpond")];
        let finished = run(std::process::Command::new("sh")
            .args(words)
            .current_dir(&directory));
        assert_eq!(finished.code(), 0, "{line}: {finished:?}");
        count += 1;
    }
    assert_eq!(count, 5);
}
