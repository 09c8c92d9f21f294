use super::*;

/// Goal: the parts of a request are distinguished, only right ones that count are kept, the stamp is
/// that of the last one, and the room is kept to.
#[test]
fn requests_become_rows() {
    let mut samples = Samples::new(2);
    let request = InFlight {
        intended_ns: 4_980_000,
        written_ns: 5_000_000,
        ..InFlight::default()
    };
    let mut answer = |counted, is_right, connect_ns| {
        let request = InFlight { counted, ..request };
        samples.answered(&Answered {
            request: &request,
            status: 200,
            is_right,
            connect_ns,
            head_ns: 5_300_000,
            now_ns: 5_900_000,
            next_written_ns: None,
        });
        samples.stamped(&request, 880_000 + connect_ns);
    };
    answer(false, true, 0);
    answer(true, false, 0);
    answer(true, true, 100_000);
    answer(true, true, 0);
    answer(true, true, 500_000);
    let first = RequestSample {
        written_ns: 5_000_000,
        slip_ns: 20_000,
        connect_ns: 100_000,
        waiting_ns: 300_000,
        service_ns: 900_000,
        kernel_service_ns: Some(980_000),
    };
    let second = RequestSample {
        connect_ns: 0,
        kernel_service_ns: Some(880_000),
        ..first
    };
    assert_eq!(
        (&samples.kept[..], samples.dropped),
        (&[first, second][..], 1)
    );
    let mut all = Samples::new(0);
    all.append(samples);
    assert_eq!((all.kept.len(), all.dropped), (2, 1));
}
