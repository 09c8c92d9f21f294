use super::*;

fn found() -> Vec<Allocator> {
    let library = |name: &str| Allocator::preloaded(name, format!("/lib/{name}.so").into());
    let names = ["jemalloc", "tcmalloc", "mimalloc", "mempool", "snmalloc"];
    let built = ["mimalloc2", "mimalloc3", "rpmalloc"];
    let mut found = vec![Allocator::native(allocator::GLIBC)];
    found.extend(names.into_iter().chain(built).map(library));
    found
}

/// Goal: a budget in which nothing can be measured is refused with one that is enough, before
/// anything is started; a number of rounds that was asked for takes its time.
#[test]
fn a_budget_without_room_for_a_round_is_refused() {
    let launcher = Launcher {
        program: PathBuf::from("/bin/true"),
    };
    let mut config = CompareConfig::new(Target::Entity { extra: Vec::new() }, launcher);
    assert!(config.check_time(11).is_ok());
    config.time_budget = Duration::from_secs(1);
    let told = config.check_time(11).unwrap_err().to_string();
    for part in [
        "--time-budget 1s",
        "10 candidates",
        "about 25 s",
        "--allocators",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let minutes = told.split_once("give it ").unwrap().1;
    let minutes: u64 = minutes.split_once('m').unwrap().0.parse().unwrap();
    config.time_budget = Duration::from_secs(minutes * 60);
    assert!(config.shortest(11) <= config.time_budget);
    config.time_budget = Duration::from_secs(1);
    config.rounds = Some(2);
    assert!(config.check_time(11).is_ok());
}

#[test]
fn a_load_program_of_the_users_is_refused() {
    let launcher = Launcher {
        program: PathBuf::from("/bin/true"),
    };
    let mut config = CompareConfig::new(Target::Entity { extra: Vec::new() }, launcher);
    config.load_command = Some(LoadCommand {
        line: "true".to_owned(),
        metrics: Vec::new(),
        timeout: Duration::from_secs(1),
        warm_ups: 0,
    });
    let mut check = |wanted| {
        config.emulated_counts = wanted;
        config.check_counts()
    };
    let error = check(Some(3)).unwrap_err().to_string();
    assert!(error.contains("--load-cmd"), "{error}");
    assert!(check(Some(0)).is_ok());
    assert!(check(None).is_ok());
}

/// Goal: a server that can use no preloaded allocator is compared in its variants if these are all; otherwise the
/// refusal says so.
#[test]
fn variants_need_no_malloc_of_ours() {
    let launcher = Launcher {
        program: PathBuf::from("/bin/true"),
    };
    let mut config = CompareConfig::new(Target::Entity { extra: Vec::new() }, launcher);
    config.allocators = Some(vec!["glibc".to_owned()]);
    assert!(!config.preloads_nothing());
    config.variants = vec![Variant::parse("gc=env:GOGC=50").unwrap()];
    assert!(config.preloads_nothing());
    let list = config.candidates(&found()[..1]).unwrap();
    assert_eq!(list.last().unwrap().name, "gc without pools");
    config.variants.push(config.variants[0].clone());
    let told = config.candidates(&found()[..1]).unwrap_err().to_string();
    assert!(told.contains("two candidates are called gc"), "{told}");
    config.allocators = Some(vec!["glibc".to_owned(), "jemalloc".to_owned()]);
    assert!(!config.preloads_nothing());
}

/// Goal: settings of one allocator have it as it is for their baseline, pools off with our own server; what the version
/// does not take is said, and what has no list is refused before anything starts.
#[test]
fn settings_are_compared_with_their_default() {
    let launcher = Launcher {
        program: PathBuf::from("/bin/true"),
    };
    let mut config = CompareConfig::new(Target::Entity { extra: Vec::new() }, launcher);
    config.settings_of = Some("glibc".to_owned());
    let chosen = config.chosen_allocators(&mut Vec::new()).unwrap();
    let list = config.candidates(&chosen).unwrap();
    assert_eq!(list.len(), chosen.len() + 1, "the baseline twice");
    assert_eq!(list[0].name, "glibc without pools");
    assert!(list.iter().all(|one| one.pools == Some(PoolSetting::Off)));
    assert!(
        list[2..]
            .iter()
            .all(|one| !one.allocator.changes.is_empty())
    );
    assert!(list[..2].iter().all(|one| one.allocator.changes.is_empty()));
    let mut warnings = Vec::new();
    if let Ok(list) = allocator::settings_of("mimalloc") {
        config.settings_of = Some("mimalloc".to_owned());
        config.chosen_allocators(&mut warnings).unwrap();
        let is_said = |setting: &&str| {
            let setting = setting.trim_start_matches(':');
            let mut lines = warnings.iter();
            lines.any(|line| line.contains("not compared") && line.contains(setting))
        };
        assert!(list.left_out.iter().all(is_said), "{warnings:?}");
    }
    config.settings_of = Some("mempool".to_owned());
    let told = config.chosen_allocators(&mut warnings).unwrap_err();
    assert!(told.to_string().contains("--settings mempool"), "{told}");
}

/// Goal: without names the usual five are compared, however many are installed; the others are named.
#[test]
fn extra_allocators_are_compared_if_named() {
    let mut warnings = Vec::new();
    let names = usual(found(), &mut warnings)
        .into_iter()
        .map(|one| one.name);
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["glibc", "jemalloc", "tcmalloc", "mimalloc", "mempool"]
    );
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("snmalloc, mimalloc2, mimalloc3, rpmalloc"));
    assert_eq!(usual(found()[..2].to_vec(), &mut warnings), found()[..2]);
    assert_eq!(warnings.len(), 1);
}
