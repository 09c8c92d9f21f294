use super::*;

/// Goal: no word of a command line is lost or reinterpreted on its way to the second stage.
#[test]
fn spec_survives_its_command_line() {
    let spec = LaunchSpec {
        preload: vec!["/a/first.so".into(), "/b/second one.so".into()],
        cpus: vec![0, 3],
        unset: vec!["MALLOC_CONF".into(), "LD_PRELOAD".into()],
        environment: vec![
            ("A".into(), "1=2".into()),
            ("EMPTY".into(), OsString::new()),
            ("BYTES".into(), OsString::from_vec(vec![0xff, b'=', 0x80])),
        ],
        directory: Some("/some where".into()),
        user: Some(Identity {
            uid: 33,
            gid: 34,
            groups: vec![34, 110],
        }),
        is_raised: true,
        huge_pages: Some(false),
        cgroups: vec![
            "/sys/fs/cgroup/x/cgroup.procs".into(),
            "/sys/fs/cgroup/memory/x/cgroup.procs".into(),
        ],
        stop_signal: StopSignal::Quit,
        log: "/tmp/a log".into(),
        output: Some("/tmp/out".into()),
        command: vec![
            "nginx".into(),
            "--".into(),
            "-g".into(),
            "--cpu".into(),
            "".into(),
        ],
    };
    assert_eq!(LaunchSpec::parse(spec.to_arguments()), Ok(spec));
}

/// Goal: wrong words are named.
#[test]
fn wrong_words_are_refused() {
    let parse = |words: &[&str]| LaunchSpec::parse(words.iter().map(OsString::from));
    assert!(parse(&["--nonsense", "1", "--", "x"]).is_err_and(|e| e.contains("--nonsense")));
    assert!(parse(&["--cpu", "one", "--", "x"]).is_err());
    assert!(parse(&["--env", "NAME", "--", "x"]).is_err());
    assert!(parse(&["--log"]).is_err());
    assert!(parse(&["--log", "l", "--"]).is_err());
}
