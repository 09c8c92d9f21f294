use super::*;

/// Goal: settings that contradict the comparison or the machine are refused; others are obeyed.
#[test]
fn wishes_are_checked() {
    let with = |change: &dyn Fn(&mut SubjectOptions)| {
        let mut options = SubjectOptions::default();
        change(&mut options);
        options.check().map_err(|error| error.to_string())
    };
    assert!(with(&|_| ()).is_ok());
    let preload = with(&|it| it.environment = vec![("LD_PRELOAD".into(), "/x".into())]);
    assert!(preload.unwrap_err().contains("--allocators NAME="));
    let nowhere = with(&|it| it.directory = Some("/nowhere".into()));
    assert_eq!(nowhere.unwrap_err(), "there is no directory /nowhere");
    let absent = with(&|it| it.load_cpus = Some(vec![100_000]));
    assert!(absent.unwrap_err().contains("CPU 100000"));
    let options = SubjectOptions {
        server_cpus: Some(vec![0]),
        ..SubjectOptions::default()
    };
    assert_eq!(options.placement().server, [0]);
    let options = SubjectOptions {
        is_pinned: false,
        ..SubjectOptions::default()
    };
    assert!(options.placement().server.is_empty());
}
