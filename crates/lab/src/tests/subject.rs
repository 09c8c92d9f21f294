use super::*;

/// Goal: the supervisor's lines are understood; anything else is ignored, not fatal.
#[test]
fn news_lines() {
    assert!(matches!(parse_news("pid 42"), Some(News::Started(42))));
    assert!(matches!(parse_news("left 7 8"), Some(News::Left(7))));
    assert!(matches!(
        parse_news("stopped by force"),
        Some(News::Stopped { forced: true })
    ));
    assert!(matches!(
        parse_news("stopped gracefully"),
        Some(News::Stopped { forced: false })
    ));
    let Some(News::Exited(exit)) = parse_news("exited signal 9") else {
        panic!("no exit")
    };
    assert_eq!(exit, Exit::Signal(9));
    assert!(parse_news("pid x").is_none());
    assert!(parse_news("").is_none());
}

/// Goal: only the end of a log is repeated, and a missing log is no error.
#[test]
fn last_lines_of_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    assert!(LastWords::read(&log).to_string().contains("wrote nothing"));
    fs::write(&log, "1\n2\n\n3\n4\n5\n6\n\n").unwrap();
    assert_eq!(LastWords::read(&log).lines, ["2", "3", "4", "5", "6"]);
    // A log of requests may have grown to gigabytes.
    let long = format!("{}\nCannot allocate memory\n", "x".repeat(200_000));
    fs::write(&log, long).unwrap();
    let last = LastWords::read(&log);
    assert!(last.lines[0].len() == 500 && last.lines.len() == 2);
    assert!(last.mention(&["cannot allocate"]) && !last.mention(&["killed"]));
}
