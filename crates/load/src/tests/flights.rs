use super::*;
use proptest::prelude::*;

/// The possible events of a connection.
#[derive(Clone, Debug)]
enum Step {
    Push { count: usize, intended_ns: u64 },
    Write { is_closed_loop: bool },
    Take { count_max: usize },
    Drain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1_usize..5, 0_u64..100)
            .prop_map(|(count, intended_ns)| Step::Push { count, intended_ns }),
        3 => any::<bool>().prop_map(|is_closed_loop| Step::Write { is_closed_loop }),
        4 => (1_usize..7).prop_map(|count_max| Step::Take { count_max }),
        1 => Just(Step::Drain),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Goal: whatever is pushed, written and taken, the requests come out one by one as from a
    /// plain queue of them, each with the stamp of its own write.
    #[test]
    fn runs_are_a_queue_of_requests(steps in steps()) {
        let mut flights = Flights::with_capacity(3);
        let mut plain: VecDeque<InFlight> = VecDeque::new();
        let (mut number, mut now_ns, mut unwritten) = (0, 1_000, 0);
        for step in steps {
            now_ns += 1;
            match step {
                Step::Push { count, intended_ns } => {
                    let request = InFlight {
                        number,
                        intended_ns,
                        counted: count % 2 == 0,
                        ..InFlight::default()
                    };
                    flights.push(Flight { request, count });
                    let more = (0..count as u64)
                        .map(|place| InFlight { number: number + place, ..request });
                    plain.extend(more);
                    number += count as u64;
                    unwritten += count;
                }
                Step::Write { is_closed_loop } => {
                    let mut seen = 0;
                    flights.written(now_ns, is_closed_loop, |flight| {
                        assert_eq!(flight.request.written_ns, now_ns);
                        seen += flight.count;
                    });
                    prop_assert_eq!(seen, unwritten);
                    for request in plain.iter_mut().rev().take(unwritten) {
                        request.written_ns = now_ns;
                        if is_closed_loop {
                            request.intended_ns = now_ns;
                        }
                    }
                    unwritten = 0;
                }
                // Only what was written gets a response.
                Step::Take { count_max } => {
                    let count_max = count_max.min(plain.len() - unwritten);
                    if count_max == 0 {
                        continue;
                    }
                    let taken = flights.take(count_max).unwrap();
                    prop_assert!((1..=count_max).contains(&taken.count));
                    for request in taken.requests() {
                        prop_assert_eq!(Some(request), plain.pop_front());
                    }
                }
                Step::Drain => {
                    let drained: Vec<InFlight> = flights.drain().collect();
                    prop_assert_eq!(drained, plain.drain(..).collect::<Vec<_>>());
                    unwritten = 0;
                }
            }
            prop_assert_eq!(flights.len(), plain.len());
            prop_assert_eq!(flights.oldest(), plain.front());
            prop_assert_eq!(flights.has_unwritten(), unwritten > 0);
        }
    }
}
