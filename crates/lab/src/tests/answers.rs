use super::*;

fn answers(right: u64, statuses: &[(u16, u64)], timeout: u64) -> Answers {
    let status = statuses.iter().map(|(_, count)| count).sum();
    Answers {
        right,
        failed: LoadErrors {
            status,
            timeout,
            ..LoadErrors::default()
        },
        statuses: statuses.iter().copied().collect(),
        redirects: (0, 0),
        silence: None,
        timed_out_phases: u32::from(timeout > 0),
    }
}

fn sentence(answers: &Answers, connections: usize, backlog: Option<u32>) -> String {
    let url = "http://127.0.0.1:8000/x";
    let mut failed = FailedRequests::of(answers, url, connections, 0.001);
    failed.backlog = backlog;
    failed.to_string()
}

/// A URL with status 302 was measured silently: a response of 150 bytes for a page of 60 KiB.
///
/// Goal: redirects are recognised where most responses are such, over all phases.
#[test]
fn redirects_are_known() {
    let phase = |statuses: &[(u16, u64)]| {
        let record = LoadRecord {
            requests: statuses.iter().map(|(_, count)| count).sum(),
            statuses: statuses.iter().copied().collect(),
            ..LoadRecord::default()
        };
        Answers::of(&record, None, &StatusSet::range(200, 399))
    };
    let mut all = phase(&[(200, 5), (302, 5)]);
    assert_eq!(all.redirected(), Some(302));
    all.add(&phase(&[(200, 1)]));
    assert_eq!(all.redirected(), None);
    all.add(&phase(&[(308, 20)]));
    assert_eq!(all.redirected(), Some(308));
    assert_eq!(phase(&[(200, 5)]).redirected(), None);
    assert_eq!(Answers::default().redirected(), None);
}

/// Goal: a single failure ends nothing, a share that is surely larger than the one that is allowed does, after few
/// requests as after many; of none allowed, one is too many.
#[test]
fn a_share_is_too_large_when_chance_does_not_explain_it() {
    for (failed, all) in [
        (1, 20),
        (1, 1_000),
        (2, 1_000),
        (100, 100_000),
        (130, 100_000),
    ] {
        assert!(!is_above(failed, all, 0.001), "{failed} of {all}");
    }
    for (failed, all) in [
        (2, 2),
        (15, 121),
        (13, 130),
        (3, 30),
        (9, 1_000),
        (200, 100_000),
    ] {
        assert!(is_above(failed, all, 0.001), "{failed} of {all}");
    }
    assert!(is_above(1, 1_000_000, 0.0) && !is_above(0, 1_000_000, 0.0));
    assert!(!is_above(0, 0, 0.001));
}

/// Goal: phases are judged together; one without a right response, and a third one that delayed all connections, are
/// too bad by themselves.
#[test]
fn phases_are_judged_together() {
    let mut sum = Answers::default();
    let one = answers(300, &[(500, 3)], 0);
    for phase in 1..=4 {
        sum.add(&one);
        // The share is 1 %: ten times what is allowed, which six failures do not prove and nine do.
        assert_eq!(sum.are_too_bad(&one, 0.001), phase > 2, "{phase}");
    }
    let nothing = answers(0, &[], 1);
    assert!(nothing.are_too_bad(&nothing, 0.5));
    let slow = answers(1_000_000, &[], 1);
    let mut sum = Answers::default();
    for phase in 1..=3 {
        sum.add(&slow);
        assert_eq!(sum.are_too_bad(&slow, 0.001), phase == 3);
    }
    assert_eq!(sum.right, 3_000_000);
}

/// Goal: the sentence names the statuses with their numbers and what to check: the URL, credentials, the number of
/// connections and the listen backlog.
#[test]
fn sentences_say_what_to_do() {
    assert_eq!(
        sentence(&answers(0, &[(404, 135)], 0), 64, None),
        "135 of 135 responses had status 404: is http://127.0.0.1:8000/x the right URL (--url)?; 0.1 % may fail \
         (--errors-allowed)"
    );
    let told = sentence(&answers(0, &[(401, 9)], 0), 64, None);
    assert!(told.contains("need credentials?"), "{told}");
    let told = sentence(&answers(100, &[(500, 12), (502, 1)], 2), 64, None);
    assert!(
        told.starts_with("15 of 115 requests failed (status 500: 12, status 502: 1, timeout: 2): "),
        "{told}"
    );
    assert!(told.contains("its log may say why"), "{told}");
    let told = sentence(&answers(106, &[], 15), 64, Some(5));
    assert!(
        told.contains("15 of 121 requests failed (timeout: 15)"),
        "{told}"
    );
    assert!(told.contains("it lets 5 connections wait"), "{told}");
    assert!(told.contains("fewer with --connections 5;"), "{told}");
    let told = sentence(&answers(106, &[], 15), 64, None);
    assert!(
        told.contains("may not serve 64 connections at once"),
        "{told}"
    );
    assert!(told.contains("fewer with --connections 16;"), "{told}");
    let told = sentence(&answers(6, &[(503, 15)], 0), 2, None);
    assert!(told.contains("fewer with --connections 1;"), "{told}");
}
