use super::*;

/// Goal: an end has its cause: by its signal, by its status, by what the log says of memory and of settings.
#[test]
fn an_end_has_its_cause() {
    let of = |exit, lines: &[&str]| {
        let last_words = LastWords {
            log: PathBuf::new(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let error = SubjectError::Ended {
            title: "server".to_owned(),
            when: "died while it was measured",
            exit,
            last_words: Box::new(last_words),
        };
        RunError::Subject(error).cause()
    };
    let crash = of(Exit::Signal(11), &["hello"]);
    assert_eq!(crash.label(), "crashed (SIGSEGV)");
    let FailureCause::Crashed { last_lines, .. } = crash else {
        panic!("{crash:?}")
    };
    assert_eq!(last_lines, ["hello"]);
    assert_eq!(of(Exit::Status(3), &[]).label(), "ended (exit status 3)");
    let killed = of(Exit::Signal(9), &[]);
    assert!(
        killed
            .label()
            .starts_with("killed (SIGKILL), likely for memory")
    );
    let refused = of(
        Exit::Signal(6),
        &["<jemalloc>: Invalid conf pair: narenaz:1"],
    );
    assert!(
        matches!(refused, FailureCause::RefusedSettings { .. }),
        "{refused:?}"
    );
    assert_eq!(of(Exit::Unknown, &[]), FailureCause::Other);
    let status = RoundStatus::from(RunError::Load("x".to_owned()));
    assert!(matches!(
        status,
        RoundStatus::Failed {
            cause: Some(FailureCause::Other),
            ..
        }
    ));
}

/// Two workers of node had no CPU for 100 ms beside a build, and a comparison lost the round.
///
/// Goal: a slice without responses is repeated if others had the CPUs, and is the server's fault if nothing else ran;
/// the sentence says which.
#[test]
fn silence_is_of_the_machine_or_of_the_server() {
    let error = |is_disturbed| RunError::NoResponse {
        window: Duration::from_millis(100),
        is_disturbed,
    };
    assert!(error(true).is_of_machine() && !error(false).is_of_machine());
    assert!(!RunError::Load("it ended".to_owned()).is_of_machine());
    assert_eq!(
        error(false).to_string(),
        "no response came within 100 ms of load"
    );
    assert!(error(true).to_string().contains("other programs"));
}
