//! Other readers of responses, besides the clocks: a script, the cookies of a user, the clock of
//! batches, a table of requests.
//!
//! Only if one of them needs to: `worker` lends them for one call, `connection` shows them each part of a response.

use std::collections::VecDeque;

use crate::cookies::Cookies;
use crate::outcome::InFlight;
use crate::samples::Batches;
use crate::samples::Samples;
use crate::script::Runner;
use crate::workload::Requests;

/// All of them, as one connection's responses see them.
pub(crate) struct Listener<'a> {
    pub(crate) index: u32,
    pub(crate) script: Option<&'a mut Runner>,
    pub(crate) cookies: Option<&'a mut Cookies>,
    pub(crate) batches: Option<&'a mut Batches>,
    pub(crate) samples: Option<&'a mut Samples>,
}

/// A response that is complete, and its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) request: &'a InFlight,
    pub(crate) status: u16,
    pub(crate) is_right: bool,
    /// How long connecting took, if the connection was opened for this request; else 0.
    pub(crate) connect_ns: u64,
    /// When its head was complete.
    pub(crate) head_ns: u64,
    pub(crate) now_ns: u64,
    /// When the request behind it was written, if there is one.
    pub(crate) next_written_ns: Option<u64>,
}

impl Listener<'_> {
    /// The head of a response is complete.
    pub(crate) fn head(
        &mut self,
        request: Option<&InFlight>,
        head: &[u8],
        requests: &Requests,
        now_ns: u64,
    ) {
        if let Some(script) = &mut self.script {
            script.head(self.index, head);
        }
        if let Some(cookies) = &mut self.cookies {
            cookies.head(self.index, request, head, requests, now_ns);
        }
    }

    /// The next bytes of its body have come.
    pub(crate) fn part(&mut self, part: &[u8]) {
        if let Some(script) = &mut self.script {
            script.part(self.index, part);
        }
    }

    /// It is complete.
    #[cold]
    pub(crate) fn answered(&mut self, answered: &Answered<'_>) {
        if let Some(script) = &mut self.script {
            script.answered(self.index, answered.status);
        }
        if let Some(batches) = &mut self.batches {
            batches.answered(self.index, answered);
        }
        if let Some(samples) = &mut self.samples {
            samples.answered(answered);
        }
    }
}

// Requests on their way on one connection, in the order in which they were written.

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

    /// The one whose response comes next.
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

    /// The pushed requests are written now; `each` gets them with the stamp.
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

    /// The oldest ones have their responses: up to `count_max`, as many as are alike.
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
#[path = "tests/flights.rs"]
mod flights_tests;
