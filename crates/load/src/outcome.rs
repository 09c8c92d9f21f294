//! The outcomes of one thread's requests: three clocks, and failures by phase.
//!
//! ```text
//! intended ------ slip ------ written ------ service ------ last byte
//!     \------------------------ response ---------------------/
//! ```
//!
//! `connection` and `worker` report here; once a second `timeline` takes the three clocks away; `run`
//! merges the threads into one record. Invariant, asserted per request: send delay + service == response.
//! Wrong responses are not in the three clocks but have histograms of their own, so that both
//! populations can be shown; how long requests without a response were waited for is kept apart.

use std::ops::Range;

use millpond_measure::histogram::{HIGHEST_NS, LatencyHistogram, SIGNIFICANT_DIGITS};
use millpond_measure::record::{LoadErrors, LoadTls, WrongAnswers};

use crate::error::FailureCauses;
use crate::listener::Flight;
use crate::outages::StallWatch;
use crate::samples::Phases;
use crate::schedule::Arrival;
use crate::shared::WakeDelays;
use crate::timeline::{Clocks, Counts};
use crate::validation::Judgement;

/// Status codes counted one by one; the parser accepts no others.
const STATUS_CODES: usize = 1_000;

/// A request on its way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct InFlight {
    pub(crate) number: u64,
    pub(crate) intended_ns: u64,
    /// 0 until the bytes are handed to the kernel.
    pub(crate) written_ns: u64,
    pub(crate) counted: bool,
    /// The class it counts for; see [`crate::workload`].
    pub(crate) class: u16,
}

/// Where a request failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Read,
    Write,
    Timeout,
}

/// Where a moment lies in the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Moment {
    /// Before the window.
    Outside,
    /// Behind the window, while responses are waited for.
    Drain,
    /// In the window, with nothing left to ask.
    Window,
    /// In the part of the window that the rate is of.
    Rate,
}

/// Everything one thread counts.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) response: LatencyHistogram,
    pub(crate) service: LatencyHistogram,
    pub(crate) slip: LatencyHistogram,
    /// Service times that are response times too, of requests without send delay: all of a closed loop.
    /// One histogram to record in and not three; [`Self::change`] shares them out.
    punctual: Tally,
    /// Response time of wrong responses.
    pub(crate) wrong_response: LatencyHistogram,
    /// Service time of wrong responses.
    pub(crate) wrong_service: LatencyHistogram,
    /// The part of the send delay that is the generator's own: a connection was free and the time had come.
    pub(crate) lateness: LatencyHistogram,
    /// The rest of the send delay: no connection was free.
    pub(crate) blocked: LatencyHistogram,
    /// `None`: not requested. On the heap: most runs have none.
    pub(crate) stalls: Option<Box<StallWatch>>,
    /// The parts of service, of a sample.
    pub(crate) wake: WakeDelays,
    /// Ages of requests that timed out, from their intended start.
    pub(crate) unanswered: LatencyHistogram,
    /// Connecting and waiting.
    pub(crate) phases: Phases,
    /// From asking for a connection to having it, of those that came up, whenever that was.
    pub(crate) opening: LatencyHistogram,
    /// Handshakes so far.
    pub(crate) tls: LoadTls,
    pub(crate) errors: LoadErrors,
    /// Why requests failed.
    pub(crate) causes: Box<FailureCauses>,
    /// Wrong responses by what is wrong with them.
    pub(crate) wrong: WrongAnswers,
    /// The same apart for each class; empty if there is one.
    pub(crate) classes: Box<[ClassOutcome]>,
    /// Whether the clocks are those of warm-up, which takes requests that do not count.
    pub(crate) is_warm_up: bool,
    /// Failures of requests that do not count.
    warm_up_errors: LoadErrors,
    /// Right responses among the clocks that were taken away.
    taken: u64,
    statuses: Box<[u64]>,
    /// Counted requests written, repetitions not included.
    pub(crate) sent: u64,
    /// Of those, how many were written after the window.
    pub(crate) sent_late: u64,
    /// Requests written again because the server announced that it would not respond to them.
    pub(crate) resent: u64,
    /// Connections that were closed for bytes that no request had asked for.
    pub(crate) unasked: u64,
    /// Counted requests under way when the run was cut off.
    pub(crate) abandoned: u64,
    /// Counted arrivals due but never written.
    pub(crate) unsent: u64,
    /// Counted arrivals dropped unsent because they were too late.
    pub(crate) shed: u64,
    /// Right responses that arrived inside the rate's window, whenever their requests left.
    pub(crate) answered_in_window: u64,
    /// The same of wrong responses.
    pub(crate) wrong_in_window: u64,
    /// Of those, how many have a wrong status.
    pub(crate) wrong_statuses_in_window: u64,
    pub(crate) received_bytes: u64,
    /// Those inside the rate's window.
    pub(crate) rate_bytes: u64,
    /// Bytes that came behind the window.
    pub(crate) drained_bytes: u64,
    pub(crate) last_response_ns: u64,
}

impl Outcome {
    pub(crate) fn new() -> Self {
        Self {
            response: LatencyHistogram::new(),
            service: LatencyHistogram::new(),
            slip: LatencyHistogram::new(),
            punctual: Tally::default(),
            wrong_response: LatencyHistogram::new(),
            wrong_service: LatencyHistogram::new(),
            lateness: LatencyHistogram::new(),
            blocked: LatencyHistogram::new(),
            stalls: None,
            wake: WakeDelays::default(),
            unanswered: LatencyHistogram::new(),
            phases: Phases::default(),
            opening: LatencyHistogram::new(),
            tls: LoadTls::default(),
            errors: LoadErrors::default(),
            causes: Box::default(),
            wrong: WrongAnswers::default(),
            classes: Box::default(),
            is_warm_up: false,
            warm_up_errors: LoadErrors::default(),
            taken: 0,
            statuses: vec![0; STATUS_CODES].into(),
            sent: 0,
            sent_late: 0,
            resent: 0,
            unasked: 0,
            abandoned: 0,
            unsent: 0,
            shed: 0,
            answered_in_window: 0,
            wrong_in_window: 0,
            wrong_statuses_in_window: 0,
            received_bytes: 0,
            rate_bytes: 0,
            drained_bytes: 0,
            last_response_ns: 0,
        }
    }

    /// With `classes` that are counted apart.
    pub(crate) fn with_classes(classes: usize) -> Self {
        Self {
            classes: (0..classes).map(|_| ClassOutcome::default()).collect(),
            ..Self::new()
        }
    }

    /// Responses are complete, to requests that have everything but their numbers in common.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        flight: &Flight,
        status: u16,
        judgement: Judgement,
        last_byte_ns: u64,
        in_window: bool,
    ) {
        let Flight { request, count } = flight;
        let count = *count as u64;
        if judgement == Judgement::Right && in_window {
            self.answered_in_window += count;
            if let Some(class) = self.classes.get_mut(usize::from(request.class)) {
                class.answered_in_window += count;
            }
        } else if in_window {
            self.wrong_in_window(judgement, count);
        }
        if !request.counted {
            return self.answered_uncounted(flight, judgement, last_byte_ns);
        }
        self.last_response_ns = self.last_response_ns.max(last_byte_ns);
        if let Some(answers) = self.statuses.get_mut(usize::from(status)) {
            *answers += count;
        }
        if judgement == Judgement::Right {
            self.record_clocks(flight, last_byte_ns);
        } else {
            self.wrong_answers(flight, judgement, last_byte_ns);
        }
        if let Some(class) = self.classes.get_mut(usize::from(request.class)) {
            class.answered(flight, judgement, last_byte_ns);
        }
    }

    /// Bytes arrived.
    #[inline]
    pub(crate) fn received(&mut self, bytes: usize, moment: Moment) {
        let bytes = bytes as u64;
        match moment {
            Moment::Outside => {}
            Moment::Drain => self.drained_bytes += bytes,
            Moment::Window => self.received_bytes += bytes,
            Moment::Rate => {
                self.received_bytes += bytes;
                self.rate_bytes += bytes;
            }
        }
    }

    #[cold]
    fn wrong_in_window(&mut self, judgement: Judgement, count: u64) {
        self.wrong_in_window += count;
        if judgement == Judgement::WrongStatus {
            self.wrong_statuses_in_window += count;
        }
    }

    #[cold]
    fn wrong_answers(&mut self, flight: &Flight, judgement: Judgement, last_byte_ns: u64) {
        let (request, count) = (&flight.request, flight.count as u64);
        self.wrong_response
            .record_many(last_byte_ns.saturating_sub(request.intended_ns), count);
        self.wrong_service
            .record_many(last_byte_ns.saturating_sub(request.written_ns), count);
        count_judgements(&mut self.errors, judgement, count);
        match judgement {
            Judgement::Right => {}
            Judgement::WrongStatus => self.wrong.status += count,
            Judgement::WrongBody => self.wrong.content += count,
            Judgement::WrongLength => self.wrong.length += count,
            Judgement::WrongChecksum => self.wrong.checksum += count,
            Judgement::NoEcho => self.wrong.echo += count,
        }
    }

    /// Warm-up's responses are shown as its own, those that came after it nowhere.
    fn answered_uncounted(&mut self, flight: &Flight, judgement: Judgement, now_ns: u64) {
        match judgement {
            _ if !self.is_warm_up => {}
            Judgement::Right => self.record_clocks(flight, now_ns),
            _ => count_judgements(&mut self.warm_up_errors, judgement, flight.count as u64),
        }
    }

    #[inline]
    fn record_clocks(&mut self, flight: &Flight, last_byte_ns: u64) {
        let InFlight {
            intended_ns,
            written_ns,
            ..
        } = flight.request;
        let count = flight.count as u64;
        assert!(
            intended_ns <= written_ns && written_ns <= last_byte_ns,
            "time runs forward: due {intended_ns}, written {written_ns}, answered {last_byte_ns}"
        );
        let slip_ns = written_ns - intended_ns;
        let service_ns = last_byte_ns - written_ns;
        let response_ns = last_byte_ns - intended_ns;
        assert_eq!(
            slip_ns + service_ns,
            response_ns,
            "no time is lost between the clocks"
        );
        if let Some(watch) = &mut self.stalls
            && flight.request.counted
        {
            watch.answered((intended_ns, written_ns), last_byte_ns, count);
        }
        if slip_ns == 0 {
            return self.punctual.record_many(service_ns, count);
        }
        self.slip.record_many(slip_ns, count);
        self.service.record_many(service_ns, count);
        self.response.record_many(response_ns, count);
    }

    /// A request will get no response.
    pub(crate) fn failed(&mut self, request: &InFlight, phase: Phase, now_ns: u64) {
        if !request.counted {
            if self.is_warm_up {
                count_phase(&mut self.warm_up_errors, phase);
            }
            return;
        }
        count_phase(&mut self.errors, phase);
        if phase == Phase::Timeout {
            self.unanswered
                .record(now_ns.saturating_sub(request.intended_ns));
        }
        if let Some(class) = self.classes.get_mut(usize::from(request.class)) {
            count_phase(&mut class.errors, phase);
        }
        self.last_response_ns = self.last_response_ns.max(now_ns);
    }

    /// Responses came after the timeout: as if they had never come.
    #[cold]
    pub(crate) fn too_late(&mut self, flight: &Flight, now_ns: u64) {
        for _ in 0..flight.count {
            self.failed(&flight.request, Phase::Timeout, now_ns);
        }
    }

    /// An arrival that was due is dropped without having been written.
    pub(crate) fn never_sent(&mut self, intended_ns: u64, now_ns: u64) {
        self.never_sent_many(intended_ns, now_ns, 1);
    }

    /// `count` neighbouring arrivals, one of which was due at `intended_ns`, are dropped.
    pub(crate) fn never_sent_many(&mut self, intended_ns: u64, now_ns: u64, count: u64) {
        self.unsent += count;
        self.errors.timeout += count;
        self.unanswered
            .record_many(now_ns.saturating_sub(intended_ns), count);
    }

    /// An arrival is dropped because it is later than its deadline.
    pub(crate) fn shed(&mut self, arrival: &Arrival, now_ns: u64) {
        if arrival.counted {
            self.shed += 1;
            self.unanswered
                .record(now_ns.saturating_sub(arrival.intended_ns));
        }
    }

    /// The run is cut off with this request under way.
    pub(crate) fn cut_off(&mut self, request: &InFlight, now_ns: u64) {
        if request.counted {
            self.abandoned += 1;
            self.unanswered
                .record(now_ns.saturating_sub(request.intended_ns));
        }
    }

    /// Right responses to counted requests, among the clocks that are here.
    pub(crate) fn requests(&self) -> u64 {
        self.response.count() + self.punctual.count()
    }

    /// The same, with those that were taken away.
    pub(crate) fn requests_so_far(&self) -> u64 {
        let here = if self.is_warm_up { 0 } else { self.requests() };
        self.taken + here
    }

    /// Puts what was recorded once where it belongs.
    fn share_out(&mut self) {
        let Self {
            punctual,
            response,
            service,
            slip,
            ..
        } = self;
        punctual.add_to(response, service);
        slip.record_many(0, punctual.count());
        punctual.clear();
    }

    /// Takes the clocks away and continues with empty ones.
    pub(crate) fn change(&mut self, mut empty: Clocks) -> (Clocks, Counts) {
        self.taken = self.requests_so_far();
        self.share_out();
        std::mem::swap(&mut self.response, &mut empty.response);
        std::mem::swap(&mut self.service, &mut empty.service);
        std::mem::swap(&mut self.slip, &mut empty.slip);
        let mut errors = self.errors;
        add_errors(&mut errors, &self.warm_up_errors);
        let counts = Counts {
            errors,
            sent: self.sent,
            shed: self.shed,
            received_bytes: self.received_bytes,
        };
        (empty, counts)
    }

    /// Responses by status code, those that occurred.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let codes = self.statuses.iter().enumerate();
        codes
            .filter(|(_, count)| **count > 0)
            .map(|(code, &count)| (code as u16, count))
    }

    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.share_out();
        other.punctual.add_to(&mut self.response, &mut self.service);
        self.slip.record_many(0, other.punctual.count());
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.slip.merge(&other.slip);
        self.wrong_response.merge(&other.wrong_response);
        self.wrong_service.merge(&other.wrong_service);
        self.lateness.merge(&other.lateness);
        self.blocked.merge(&other.blocked);
        if let Some(watch) = &other.stalls {
            let sum = self.stalls.get_or_insert_default();
            sum.undisturbed.merge(&watch.undisturbed);
        }
        self.wake.merge(&other.wake);
        self.unanswered.merge(&other.unanswered);
        self.opening.merge(&other.opening);
        self.tls.add(&other.tls);
        for (sum, count) in self.statuses.iter_mut().zip(&other.statuses) {
            *sum += count;
        }
        self.phases.merge(&other.phases);
        add_errors(&mut self.errors, &other.errors);
        self.causes.merge(&other.causes);
        self.wrong.add(&other.wrong);
        for (sum, class) in self.classes.iter_mut().zip(&other.classes) {
            sum.merge(class);
        }
        self.sent += other.sent;
        self.sent_late += other.sent_late;
        self.resent += other.resent;
        self.unasked += other.unasked;
        self.abandoned += other.abandoned;
        self.unsent += other.unsent;
        self.shed += other.shed;
        self.answered_in_window += other.answered_in_window;
        self.wrong_in_window += other.wrong_in_window;
        self.wrong_statuses_in_window += other.wrong_statuses_in_window;
        self.received_bytes += other.received_bytes;
        self.rate_bytes += other.rate_bytes;
        self.drained_bytes += other.drained_bytes;
        self.last_response_ns = self.last_response_ns.max(other.last_response_ns);
    }
}

pub(crate) fn count_judgements(errors: &mut LoadErrors, judgement: Judgement, count: u64) {
    match judgement {
        Judgement::Right => {}
        Judgement::WrongStatus => errors.status += count,
        _ => errors.validation += count,
    }
}

fn count_phase(errors: &mut LoadErrors, phase: Phase) {
    match phase {
        Phase::Read => errors.read += 1,
        Phase::Write => errors.write += 1,
        Phase::Timeout => errors.timeout += 1,
    }
}

/// Adds counts of failures.
pub(crate) fn add_errors(sum: &mut LoadErrors, part: &LoadErrors) {
    *sum = sum.plus(part);
}

// The outcomes of one class's requests in one thread.

/// Counts of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassOutcome {
    pub(crate) response: LatencyHistogram,
    pub(crate) service: LatencyHistogram,
    pub(crate) errors: LoadErrors,
    /// Right responses that arrived inside the window, whenever their requests left.
    pub(crate) answered_in_window: u64,
}

impl ClassOutcome {
    /// Counted responses are complete.
    pub(crate) fn answered(&mut self, flight: &Flight, judgement: Judgement, last_byte_ns: u64) {
        let (request, count) = (&flight.request, flight.count as u64);
        if judgement == Judgement::Right {
            let response_ns = last_byte_ns.saturating_sub(request.intended_ns);
            let service_ns = last_byte_ns.saturating_sub(request.written_ns);
            self.response.record_many(response_ns, count);
            self.service.record_many(service_ns, count);
        } else {
            count_judgements(&mut self.errors, judgement, count);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        add_errors(&mut self.errors, &other.errors);
        self.answered_in_window += other.answered_in_window;
    }
}

// Times of one thread counted in HdrHistogram's bins, and nothing but counted.

/// Times below `1 << BITS` have bins of their own; above, each doubling has half as many.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);
/// Of all times up to [`HIGHEST_NS`], and up to the next power of two.
const VALUE_BITS: u32 = u64::BITS - HIGHEST_NS.leading_zeros();
/// Beyond the first: how often the longest halves until it has a bin of its own.
const DOUBLINGS: u32 = VALUE_BITS - BITS;
/// The first doubling has two halves.
const BINS: usize = HALF * (DOUBLINGS as usize + 2);

const _: () = assert!(
    2 * 10_usize.pow(SIGNIFICANT_DIGITS as u32) <= 2 * HALF
        && 2 * 10_usize.pow(SIGNIFICANT_DIGITS as u32) > HALF,
    "the bins are those of a histogram"
);

/// Counts by bin. Invariant: a doubling without its bit in `used` has no counts.
#[derive(Debug)]
pub(crate) struct Tally {
    bins: Box<[u64]>,
    used: u64,
    count: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            bins: vec![0; BINS].into(),
            used: 0,
            count: 0,
        }
    }
}

impl Tally {
    /// How many times were recorded.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Counts a time so many times. One that has no bin counts as [`HIGHEST_NS`].
    #[inline]
    pub(crate) fn record_many(&mut self, value_ns: u64, count: u64) {
        let has_bin = value_ns >> VALUE_BITS == 0;
        let value_ns = if has_bin { value_ns } else { HIGHEST_NS };
        let doubling = u64::BITS - BITS - (value_ns | ((1 << BITS) - 1)).leading_zeros();
        let index = HALF * doubling as usize + (value_ns >> doubling) as usize;
        if let Some(bin) = self.bins.get_mut(index) {
            *bin += count;
            self.used |= 1 << doubling;
            self.count += count;
        }
    }

    /// Adds every time to both.
    pub(crate) fn add_to(&self, one: &mut LatencyHistogram, other: &mut LatencyHistogram) {
        for doubling in self.doublings() {
            let places = places_of(doubling);
            for (index, &count) in places.clone().zip(&self.bins[places]) {
                if count > 0 {
                    let value_ns = ((index - HALF * doubling) as u64) << doubling;
                    one.record_many(value_ns, count);
                    other.record_many(value_ns, count);
                }
            }
        }
    }

    /// Forgets all times.
    pub(crate) fn clear(&mut self) {
        for doubling in self.doublings() {
            self.bins[places_of(doubling)].fill(0);
        }
        (self.used, self.count) = (0, 0);
    }

    /// Those with counts: a thread's times lie in a few.
    fn doublings(&self) -> impl Iterator<Item = usize> + use<> {
        let used = self.used;
        (0..=DOUBLINGS as usize).filter(move |doubling| used >> doubling & 1 == 1)
    }
}

/// Where the bins of a doubling lie.
fn places_of(doubling: usize) -> Range<usize> {
    let first = if doubling == 0 {
        0
    } else {
        HALF * (doubling + 1)
    };
    first..HALF * (doubling + 2)
}

#[cfg(test)]
#[path = "tests/outcome.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/tally.rs"]
mod tally_tests;
