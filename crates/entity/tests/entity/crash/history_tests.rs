//! The checker checked: behavior of a register passes, and every kind of fault is found.

use std::collections::HashSet;

use super::history::{
    Action, Answer, Condition, Moment, Operation, Put, PutNumber, State, Violation, possible_after,
};

fn moment(at: u64) -> Moment {
    // A second between two moments, so that ends are distinguished.
    Moment {
        since_start_ns: at,
        clock_ms: 1_000_000 + 1000 * at,
    }
}

fn operation(from: u64, to: u64, action: Action) -> Operation {
    Operation {
        invoked: moment(from),
        returned: moment(to),
        action,
    }
}

fn lasting(number: PutNumber) -> Put {
    Put {
        number,
        expires_ms: 0,
    }
}

fn ending(number: PutNumber, at: u64) -> Put {
    Put {
        number,
        expires_ms: moment(at).clock_ms,
    }
}

fn put(from: u64, to: u64, number: PutNumber) -> Operation {
    operation(
        from,
        to,
        Action::Put(lasting(number), Condition::None, Answer::Done),
    )
}

fn unanswered(from: u64, number: PutNumber) -> Operation {
    let action = Action::Put(lasting(number), Condition::None, Answer::Unknown);
    operation(from, 1000, action)
}

fn conditional(from: u64, to: u64, number: PutNumber, on: Condition, answer: Answer) -> Operation {
    operation(from, to, Action::Put(lasting(number), on, answer))
}

fn delete(from: u64, to: u64) -> Operation {
    operation(from, to, Action::Delete(Answer::Done))
}

fn read(from: u64, to: u64, found: Option<PutNumber>) -> Operation {
    operation(from, to, Action::Read(found))
}

/// From an absent entity on.
fn check(operations: &[Operation]) -> Result<HashSet<State>, Violation> {
    possible_after(&HashSet::from([None]), operations)
}

fn numbers(states: HashSet<State>) -> Vec<PutNumber> {
    let mut numbers: Vec<_> = states
        .into_iter()
        .map(|state| state.map_or(0, |put| put.number))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Goal: valid responses of one register pass, and its possible final contents is known exactly.
#[test]
fn possible_histories_pass() {
    use Answer::{Done, Refused, Unknown};
    let histories: [(&[Operation], &[PutNumber]); 11] = [
        (&[], &[0]),
        (
            &[
                put(1, 2, 7),
                read(3, 4, Some(7)),
                delete(5, 6),
                read(7, 8, None),
            ],
            &[0],
        ),
        // At the same time: either order, and a read in between may see any.
        (&[put(1, 5, 7), put(1, 5, 8)], &[7, 8]),
        (
            &[
                put(1, 9, 7),
                put(1, 9, 8),
                read(2, 3, Some(8)),
                read(4, 5, Some(7)),
            ],
            &[7],
        ),
        (&[put(1, 9, 7), read(2, 3, None), read(4, 5, Some(7))], &[7]),
        // Without response: done or not, unless a read saw it.
        (&[put(1, 2, 7), unanswered(3, 8)], &[7, 8]),
        (&[put(1, 2, 7), unanswered(3, 8), read(4, 5, Some(8))], &[8]),
        (
            &[
                put(1, 2, 7),
                unanswered(3, 8),
                read(4, 5, Some(7)),
                read(6, 7, Some(8)),
            ],
            &[8],
        ),
        // Of two that saw the same version one writes.
        (
            &[
                put(1, 2, 7),
                conditional(3, 9, 8, Condition::Holds(7), Done),
                conditional(3, 9, 9, Condition::Holds(7), Refused),
            ],
            &[8],
        ),
        (
            &[
                conditional(1, 2, 7, Condition::Absent, Done),
                conditional(3, 4, 8, Condition::Absent, Refused),
                conditional(5, 6, 9, Condition::Holds(8), Unknown),
            ],
            &[7],
        ),
        // A second after the end it may be seen by a slow reader, not asked for later.
        (
            &[
                operation(1, 2, Action::Put(ending(7, 10), Condition::None, Done)),
                read(9, 12, None),
                read(9, 12, Some(7)),
                read(13, 14, None),
            ],
            &[7],
        ),
    ];
    for (index, (operations, expected)) in histories.into_iter().enumerate() {
        let found = check(operations).unwrap_or_else(|error| panic!("history {index}: {error}"));
        assert_eq!(numbers(found), expected, "history {index}");
    }
}

/// Goal: each planted violation is found, and the operation named that cannot be.
#[test]
fn violations_are_found() {
    let lost = read(9, 10, None);
    let histories: [(&str, &[Operation]); 9] = [
        ("an acknowledged put is lost", &[put(1, 2, 7), lost]),
        (
            "an acknowledged delete is lost",
            &[put(1, 2, 7), delete(3, 4), read(9, 10, Some(7))],
        ),
        (
            "an older value comes back",
            &[put(1, 2, 7), put(3, 4, 8), read(9, 10, Some(7))],
        ),
        ("a value nobody put", &[put(1, 2, 7), read(9, 10, Some(8))]),
        (
            "a value from the future",
            &[read(1, 2, Some(7)), put(3, 4, 7)],
        ),
        (
            "seen, then gone",
            &[unanswered(1, 7), read(2, 3, Some(7)), lost],
        ),
        (
            "gone, then seen",
            &[
                put(1, 2, 7),
                delete(3, 9),
                read(4, 5, None),
                read(6, 7, Some(7)),
            ],
        ),
        (
            "invented twice",
            &[
                unanswered(1, 7),
                read(2, 3, Some(7)),
                put(4, 5, 8),
                read(9, 10, Some(7)),
            ],
        ),
        (
            "two readers disagree about the order",
            &[
                put(1, 20, 7),
                put(1, 20, 8),
                read(2, 3, Some(7)),
                read(4, 5, Some(8)),
                read(6, 7, Some(7)),
            ],
        ),
    ];
    for (name, operations) in histories {
        assert!(check(operations).is_err(), "{name} was not found");
    }
}

/// Goal: the same for conditions and for ends.
#[test]
fn violations_of_conditions_and_ends_are_found() {
    use Answer::{Done, Refused};
    let lost = read(9, 10, None);
    let histories: [(&str, &[Operation]); 5] = [
        (
            "both of two conditional puts",
            &[
                put(1, 2, 7),
                conditional(3, 9, 8, Condition::Holds(7), Done),
                conditional(3, 9, 9, Condition::Holds(7), Done),
            ],
        ),
        (
            "a conditional put on what is not there",
            &[conditional(1, 2, 8, Condition::Holds(7), Done)],
        ),
        (
            "refused for nothing",
            &[conditional(1, 2, 8, Condition::Absent, Refused)],
        ),
        (
            "read after its end",
            &[
                operation(1, 2, Action::Put(ending(7, 10), Condition::None, Done)),
                read(13, 14, Some(7)),
            ],
        ),
        (
            "gone before its end",
            &[
                operation(1, 2, Action::Put(ending(7, 20), Condition::None, Done)),
                lost,
            ],
        ),
    ];
    for (name, operations) in histories {
        assert!(check(operations).is_err(), "{name} was not found");
    }
}

/// Goal: a part begins with what the part before it left open, and no later.
#[test]
fn deaths_end_what_was_under_way() {
    let first = check(&[put(1, 2, 7), unanswered(3, 8)]).unwrap();
    let seen = possible_after(&first, &[read(4, 5, Some(8))]).unwrap();
    assert_eq!(numbers(seen.clone()), [8]);
    possible_after(&seen, &[read(6, 7, Some(7))]).unwrap_err();
    let not_seen = possible_after(&first, &[read(4, 5, Some(7))]).unwrap();
    assert_eq!(numbers(not_seen.clone()), [7]);
    // It was under way when the server died: now it is too late for it.
    possible_after(&not_seen, &[read(6, 7, Some(8))]).unwrap_err();
}

/// Goal: histories of a real register pass whatever overlaps, and one changed response is found unless another order
/// explains it, which a search through all orders decides.
#[test]
fn search_agrees_with_all_orders() {
    let mut random = fastrand::Rng::with_seed(8);
    let mut found = 0;
    for _ in 0..3000 {
        let mut operations = random_history(&mut random);
        assert!(check(&operations).is_ok(), "{operations:?}");
        let index = random.usize(..operations.len());
        if let Action::Read(read) = &mut operations[index].action {
            *read = [None, Some(1), Some(2), Some(3)][random.usize(..4)];
        }
        let possible = some_order_explains(&operations);
        assert_eq!(check(&operations).is_ok(), possible, "{operations:?}");
        found += u32::from(!possible);
    }
    assert!(
        found > 100,
        "only {found} of the changed histories were impossible"
    );
}

/// Six operations at moments of their own, and around each some time.
fn random_history(random: &mut fastrand::Rng) -> Vec<Operation> {
    let mut state = None;
    let mut next_number = 0;
    (0..6)
        .map(|index| {
            let at = 100 * (index + 1);
            let (from, to) = (at - random.u64(..250).min(at), at + random.u64(..250));
            match random.u8(..4) {
                0 => {
                    next_number += 1;
                    state = Some(next_number);
                    put(from, to, next_number)
                }
                1 => {
                    state = None;
                    delete(from, to)
                }
                _ => read(from, to, state),
            }
        })
        .collect()
}

/// Every order that the times allow, one after the other.
fn some_order_explains(operations: &[Operation]) -> bool {
    fn go_on(operations: &[Operation], done: &mut Vec<usize>, state: Option<PutNumber>) -> bool {
        if done.len() == operations.len() {
            return true;
        }
        (0..operations.len()).any(|index| {
            let next = &operations[index];
            let left = |other: &usize| !done.contains(other);
            let is_first = (0..operations.len()).filter(left).all(|other| {
                operations[other].returned.since_start_ns >= next.invoked.since_start_ns
            });
            if done.contains(&index) || !is_first {
                return false;
            }
            let state = match next.action {
                Action::Put(put, ..) => Some(put.number),
                Action::Delete(_) => None,
                Action::Read(found) if found != state => return false,
                Action::Read(_) => state,
            };
            done.push(index);
            let explained = go_on(operations, done, state);
            done.pop();
            explained
        })
    }
    go_on(operations, &mut Vec::new(), None)
}
