//! Requests on their way on one connection, in the order in which they were written.
//!
//! On the path: `session` adds what it writes and takes off what is answered. Requests that leave in
//! one write and differ in nothing but their numbers stand here once, with their count: in a closed
//! loop a whole pipeline is one entry, stamped once and counted once. In an open loop each has an
//! intended start of its own, and an entry of its own.
//! Absent on purpose: a bound, which is the session's pipeline or what a script writes at once.
use crate::outcome::InFlight;
use std::collections::VecDeque;

/// Requests in a row that have all but their numbers in common.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Flight {
    /// The oldest of them; the numbers of the others follow.
    pub(crate) request: InFlight,
    pub(crate) count: usize,
}

impl Flight {
    #[cfg(test)]
    pub(crate) fn one(request: InFlight) -> Self {
        Self { request, count: 1 }
    }

    fn requests(self) -> impl Iterator<Item = InFlight> {
        let numbers = self.request.number..self.request.number + self.count as u64;
        numbers.map(move |number| InFlight {
            number,
            ..self.request
        })
    }

    fn stamp(&mut self, now_ns: u64, is_closed_loop: bool) {
        self.request.written_ns = now_ns;
        if is_closed_loop {
            self.request.intended_ns = now_ns;
        }
    }
}

/// Invariant: `front` has a count above 0 unless there is nothing at all, and all of `behind` have.
/// The last `unwritten` entries, `front` being the first of all, wait for their stamp.
#[derive(Debug)]
pub(crate) struct Flights {
    front: Flight,
    behind: VecDeque<Flight>,
    /// Of all entries.
    requests: usize,
    unwritten: usize,
}

impl Flights {
    /// Adds no memory call for up to `requests`.
    pub(crate) fn with_capacity(requests: usize) -> Self {
        Self {
            front: Flight::default(),
            behind: VecDeque::with_capacity(requests.saturating_sub(1)),
            requests: 0,
            unwritten: 0,
        }
    }

    /// Requests on their way.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.requests
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// The one that is answered next.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<&InFlight> {
        (self.requests > 0).then_some(&self.front.request)
    }

    /// Whether some wait for [`Self::written`].
    #[inline]
    pub(crate) fn has_unwritten(&self) -> bool {
        self.unwritten > 0
    }

    /// These will be written next.
    #[inline]
    pub(crate) fn push(&mut self, flight: Flight) {
        if self.requests == 0 {
            self.front = flight;
        } else {
            self.behind.push_back(flight);
        }
        self.requests += flight.count;
        self.unwritten += 1;
    }

    /// What was pushed is written now; `each` sees it with its stamp.
    #[inline]
    pub(crate) fn written(
        &mut self,
        now_ns: u64,
        is_closed_loop: bool,
        mut each: impl FnMut(&Flight),
    ) {
        let unwritten = std::mem::take(&mut self.unwritten);
        let behind = self.behind.len();
        if unwritten > behind {
            self.front.stamp(now_ns, is_closed_loop);
            each(&self.front);
        }
        if behind > 0 {
            let before = behind.saturating_sub(unwritten);
            for flight in self.behind.range_mut(before..) {
                flight.stamp(now_ns, is_closed_loop);
                each(flight);
            }
        }
    }

    /// The oldest ones are answered: up to `count_max`, as many as are alike.
    #[inline]
    pub(crate) fn take(&mut self, count_max: usize) -> Option<Flight> {
        let Flight { request, count } = self.front;
        if self.requests == 0 {
            return None;
        }
        let taken = count.min(count_max);
        self.requests -= taken;
        if taken < count {
            self.front.count -= taken;
            self.front.request.number += taken as u64;
        } else if let Some(next) = self.behind.pop_front() {
            self.front = next;
        }
        Some(Flight {
            request,
            count: taken,
        })
    }

    /// Empties it, one by one.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = InFlight> + '_ {
        let has_any = self.requests > 0;
        (self.requests, self.unwritten) = (0, 0);
        let front = has_any.then_some(self.front);
        let all = front.into_iter().chain(self.behind.drain(..));
        all.flat_map(Flight::requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What can happen to a connection.
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
                    // Only what was written is answered.
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
}
