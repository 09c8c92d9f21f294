use super::*;

/// Goal: a generator on a machine that stalls ends no benchmark, and one that cannot run does. A run
/// of one second is soon one in which a tenth of it was withheld.
#[test]
fn a_run_that_does_not_trust_itself_counts() {
    let run = |script: &str| text_of_load(Command::new("sh").args(["-c", script]));
    assert_eq!(
        run("echo 7 requests; exit 4"),
        Ok("7 requests\n".to_owned())
    );
    let refused = run("echo no such target >&2; exit 2").unwrap_err();
    assert!(refused.contains("no such target"), "{refused}");
}
