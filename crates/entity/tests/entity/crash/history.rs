//! Observations of one key, and whether a single register can have produced them.
//!
//! Linearizability: each operation happened at one moment between its request and its response; one without a response
//! happened between its request and the end of the server, or never. The search is Lowe's: moments are chosen no
//! earlier than a response requires, and visited states are not visited again. A key's history is searched from one
//! kill to the next; the possible contents then are where the next part starts. Registers are linearizable each for
//! itself, so all are.

use std::collections::HashSet;
use std::fmt;

/// No put has the number of another one, in any part of a history.
pub(crate) type PutNumber = u64;

/// The result of a put.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Put {
    pub(crate) number: PutNumber,
    /// Milliseconds since 1970; 0: it does not end.
    pub(crate) expires_ms: u64,
}

/// Content of the register.
pub(crate) type State = Option<Put>;

/// When a client sent or received something, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Since the beginning of the history: decides about order.
    pub(crate) since_start_ns: u64,
    /// Since 1970: decides about ends.
    pub(crate) clock_ms: u64,
}

/// The clock may be set a little while a test runs.
const CLOCK_SLACK_MS: u64 = 500;

/// On what a put depends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Condition {
    None,
    Holds(PutNumber),
    Absent,
}

/// The response to a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Done,
    /// 412.
    Refused,
    /// None came.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Put(Put, Condition, Answer),
    Delete(Answer),
    /// The value found.
    Read(Option<PutNumber>),
}

/// One request and its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) invoked: Moment,
    /// The death of the server, where no response came.
    pub(crate) returned: Moment,
    pub(crate) action: Action,
}

impl Operation {
    pub(crate) fn is_answered(&self) -> bool {
        !matches!(
            self.action,
            Action::Put(_, _, Answer::Unknown) | Action::Delete(Answer::Unknown)
        )
    }

    fn may_be_there(&self, put: Put) -> bool {
        put.expires_ms == 0 || self.invoked.clock_ms < put.expires_ms + CLOCK_SLACK_MS
    }

    fn may_have_ended(&self, put: Put) -> bool {
        put.expires_ms != 0 && self.returned.clock_ms + CLOCK_SLACK_MS >= put.expires_ms
    }

    /// Content of the register after the operation; `None`: it cannot have happened here.
    fn apply(&self, state: State) -> Option<State> {
        let may_be_there = |number: Option<PutNumber>| match (state, number) {
            (Some(put), Some(number)) => put.number == number && self.may_be_there(put),
            (Some(put), None) => self.may_be_there(put),
            (None, _) => false,
        };
        let may_be_absent = state.is_none_or(|put| self.may_have_ended(put));
        match self.action {
            Action::Put(put, condition, answer) => {
                let (may_hold, may_fail) = match condition {
                    Condition::None => (true, false),
                    Condition::Absent => (may_be_absent, may_be_there(None)),
                    Condition::Holds(number) => {
                        let is_other = state.is_none_or(|put| put.number != number);
                        (may_be_there(Some(number)), is_other || may_be_absent)
                    }
                };
                match answer {
                    // Without an effect is the same as never, which the search tries anyway.
                    Answer::Done | Answer::Unknown => may_hold.then_some(Some(put)),
                    Answer::Refused => may_fail.then_some(state),
                }
            }
            Action::Delete(_) => Some(None),
            Action::Read(None) => may_be_absent.then_some(state),
            Action::Read(found) => may_be_there(found).then_some(state),
        }
    }
}

/// No order of the operations explains this one.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) operation: Operation,
    /// Possible contents of the register before it.
    pub(crate) possible: Vec<State>,
    /// The other operations under way.
    pub(crate) open: Vec<Operation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "impossible: {:?}", self.operation)?;
        writeln!(
            formatter,
            "before it the key held one of {:?}",
            self.possible
        )?;
        for operation in &self.open {
            writeln!(formatter, "meanwhile: {operation:?}")?;
        }
        Ok(())
    }
}

/// A possible history: the register's content, and which of the operations under way have happened, by place.
type Way = (State, u64);

/// A history whose operations are under way or explained.
struct Search<'a> {
    /// Operations under way, by place.
    places: Vec<Option<&'a Operation>>,
    ways: HashSet<Way>,
}

/// More ways than this is a load that the search is not made for.
const WAYS_MAX: usize = 2_000_000;

/// Possible contents when the server is killed after `operations`, if it held one of `before` at first.
pub(crate) fn possible_after(
    before: &HashSet<State>,
    operations: &[Operation],
) -> Result<HashSet<State>, Violation> {
    // Requests come before responses of the same moment: that forbids less.
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        events.push((operation.invoked.since_start_ns, false, index));
        if operation.is_answered() {
            events.push((operation.returned.since_start_ns, true, index));
        }
    }
    events.sort_unstable();
    let mut search = Search {
        places: Vec::new(),
        ways: before.iter().map(|&state| (state, 0)).collect(),
    };
    let mut place_of = vec![0; operations.len()];
    for (_, is_answer, index) in events {
        match is_answer {
            false => place_of[index] = search.begin(&operations[index]),
            true => search.end(place_of[index])?,
        }
    }
    let all = search.reachable(None);
    Ok(all.into_iter().map(|(state, _)| state).collect())
}

impl<'a> Search<'a> {
    fn begin(&mut self, operation: &'a Operation) -> usize {
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        assert!(
            place < 64,
            "more operations on one key at once than a way has bits"
        );
        self.places[place] = Some(operation);
        place
    }

    /// The operation got its response: only histories in which it has happened remain.
    fn end(&mut self, place: usize) -> Result<(), Violation> {
        let bit = 1 << place;
        let reached = self.reachable(Some(bit));
        let happened = reached.into_iter().filter(|(_, done)| done & bit != 0);
        let ways: HashSet<Way> = happened.map(|(state, done)| (state, done & !bit)).collect();
        let operation = self.places[place].take().unwrap();
        if ways.is_empty() {
            let possible: HashSet<State> = self.ways.iter().map(|(state, _)| *state).collect();
            return Err(Violation {
                operation: *operation,
                possible: possible.into_iter().collect(),
                open: self.places.iter().flatten().map(|open| **open).collect(),
            });
        }
        self.ways = ways;
        Ok(())
    }

    /// All histories that operations under way lead to, none after the one of `last`: operations that may wait do.
    fn reachable(&self, last: Option<u64>) -> HashSet<Way> {
        let mut seen = self.ways.clone();
        let mut left: Vec<Way> = seen.iter().copied().collect();
        while let Some((state, done)) = left.pop() {
            if last.is_some_and(|last| done & last != 0) {
                continue;
            }
            for (place, operation) in self.places.iter().enumerate() {
                let Some(operation) = operation.filter(|_| done & 1 << place == 0) else {
                    continue;
                };
                let next = operation
                    .apply(state)
                    .map(|state| (state, done | 1 << place));
                if let Some(next) = next.filter(|next| seen.insert(*next)) {
                    left.push(next);
                }
            }
            assert!(
                seen.len() < WAYS_MAX,
                "too many operations on one key at once"
            );
        }
        seen
    }
}
