use super::*;
use proptest::prelude::*;

fn request(intended_ns: u64, written_ns: u64) -> InFlight {
    InFlight {
        number: 0,
        intended_ns,
        written_ns,
        counted: true,
        class: 0,
    }
}

fn flight(intended_ns: u64, written_ns: u64) -> Flight {
    Flight::one(request(intended_ns, written_ns))
}

proptest! {
    /// Goal: whatever the stamps, each request adds one sample to each clock and they add up.
    #[test]
    fn the_clocks_add_up(
        stamps in prop::collection::vec((0u64..1 << 40, 0u64..1 << 30, 0u64..1 << 30), 1..50)
    ) {
        let mut outcome = Outcome::new();
        let mut sum = 0;
        for &(intended_ns, slip_ns, service_ns) in &stamps {
            let written_ns = intended_ns + slip_ns;
            let last_ns = written_ns + service_ns;
            outcome.answered(&flight(intended_ns, written_ns), 200, Judgement::Right, last_ns, true);
            sum += slip_ns + service_ns;
        }
        prop_assert_eq!(outcome.requests(), stamps.len() as u64);
        prop_assert_eq!(outcome.slip.count(), outcome.service.count());
        let total = outcome.response.mean() * stamps.len() as f64;
        prop_assert!((total - sum as f64).abs() <= sum as f64 * 0.002 + stamps.len() as f64);
    }
}

#[test]
#[should_panic(expected = "time runs forward")]
fn an_answer_before_its_request_is_a_bug() {
    Outcome::new().answered(&flight(10, 20), 200, Judgement::Right, 19, true);
}

/// Goal: failures and wrong responses leave no sample in the clocks of right responses, each is counted once, and wrong
/// responses have histograms of their own.
#[test]
fn failures_are_no_samples_of_right_answers() {
    let mut outcome = Outcome::new();
    outcome.answered(&flight(1, 2), 503, Judgement::WrongStatus, 9, true);
    outcome.answered(&flight(1, 2), 200, Judgement::WrongBody, 9, true);
    outcome.failed(&request(1, 2), Phase::Read, 9);
    outcome.failed(&request(1, 2), Phase::Write, 9);
    outcome.failed(&request(1_000, 2_000), Phase::Timeout, 9_000);
    outcome.never_sent(1_000, 5_000);
    assert_eq!(outcome.requests(), 0);
    assert_eq!(outcome.answered_in_window, 0);
    assert_eq!(
        (outcome.wrong_in_window, outcome.wrong_statuses_in_window),
        (2, 1)
    );
    assert_eq!(outcome.wrong_response.count(), 2);
    assert_eq!(
        (outcome.wrong_response.max(), outcome.wrong_service.max()),
        (8, 7)
    );
    let errors = LoadErrors {
        connect: 0,
        read: 1,
        write: 1,
        timeout: 2,
        status: 1,
        validation: 1,
    };
    assert_eq!(outcome.errors, errors);
    assert_eq!(outcome.statuses().collect::<Vec<_>>(), [(200, 1), (503, 1)]);
    // Ages count from the intended start: the waiting is not hidden.
    assert_eq!(outcome.unanswered.count(), 2);
    assert!(outcome.unanswered.max() >= 8_000 && outcome.unanswered.min() <= 4_000);
}

/// Goal: warm-up leaves no trace but the throughput of responses inside the window.
#[test]
fn warm_up_is_not_counted() {
    let mut outcome = Outcome::new();
    let warm = InFlight {
        counted: false,
        ..request(1, 2)
    };
    let warm_flight = Flight::one(warm);
    outcome.answered(&warm_flight, 200, Judgement::Right, 9, false);
    outcome.answered(&warm_flight, 200, Judgement::Right, 10, true);
    outcome.failed(&warm, Phase::Timeout, 9);
    outcome.cut_off(&warm, 9);
    assert_eq!((outcome.requests(), outcome.answered_in_window), (0, 1));
    assert_eq!(outcome.errors, LoadErrors::default());
    assert_eq!(
        outcome.statuses().count() as u64 + outcome.unanswered.count(),
        0
    );
}

#[test]
fn merging_adds_every_counter() {
    let mut one = Outcome::new();
    one.answered(&flight(1, 2), 200, Judgement::Right, 9, true);
    let mut two = Outcome::new();
    two.answered(&flight(1, 2), 200, Judgement::Right, 19, true);
    two.failed(&request(1, 2), Phase::Read, 5);
    two.errors.connect = 3;
    two.sent = 2;
    one.merge(&two);
    assert_eq!((one.requests(), one.errors.total(), one.sent), (2, 4, 2));
    assert_eq!((one.last_response_ns, one.answered_in_window), (19, 2));
    assert_eq!(one.statuses().collect::<Vec<_>>(), [(200, 2)]);
}
