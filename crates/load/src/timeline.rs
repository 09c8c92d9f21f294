//! Seconds of a run: what each thread records is taken from it once a second, without stopping it.
//!
//! A `worker` records into the histograms it holds. The first event behind the end of a second
//! makes it change them for empty ones ([`Outcome::change`]) and send the full ones off, three
//! pointers each; the supervising thread adds those of all threads to a [`Second`], that to the
//! totals, and lays the emptied ones out for reuse. So a request costs the same with seconds as
//! without, and the sum of all seconds is the run, exactly. A thread that finds no empty histograms
//! makes new ones.
use crate::outages::Steadiness;
use crate::outcome::{Outcome, add_errors};
use crate::schedule::Schedule;
use millpond_measure::histogram::{LatencyHistogram, LatencySummary};
use millpond_measure::record::{LoadErrors, LoadSecond, RunPart};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

const SECOND_NS: u64 = 1_000_000_000;

/// The three clocks over some time.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    /// From the intended start to the last byte.
    pub response: LatencyHistogram,
    /// From the actual write to the last byte.
    pub service: LatencyHistogram,
    /// From the intended start to the actual write.
    pub slip: LatencyHistogram,
}

impl Clocks {
    /// Adds every sample of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.slip.merge(&other.slip);
    }

    /// Figures of `service`. Where every request left when it was due, they are those of `response`: a closed loop's
    /// always.
    fn service_summary(&self, response_ns: &LatencySummary) -> LatencySummary {
        let left_on_time = self.slip.max() == 0 && self.slip.count() == self.response.count();
        match left_on_time {
            true => *response_ns,
            false => self.service.summary(),
        }
    }

    fn clear(&mut self) {
        self.response.clear();
        self.service.clear();
        self.slip.clear();
    }
}

/// One second of a run, of all threads together.
#[derive(Debug)]
pub struct Second<'a> {
    /// Its figures.
    pub figures: &'a LoadSecond,
    /// The samples that they are of.
    pub clocks: &'a Clocks,
}

/// A second, or what the ends of warm-up and window leave of one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    /// Counts from 0 through all parts.
    pub(crate) index: u64,
    pub(crate) part: RunPart,
    /// Whether it is shorter by design, and shown with others as a second.
    is_slice: bool,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

impl Span {
    /// The one that `now_ns` lies in. Seconds of each part count from its beginning.
    pub(crate) fn at(schedule: &Schedule, now_ns: u64) -> Self {
        let window_start_ns = schedule.window_start_ns();
        let window_end_ns = schedule.window_end_ns().unwrap_or(u64::MAX);
        let now_ns = now_ns.max(schedule.start_ns());
        let warm_up = Part {
            cut_ns: schedule.warm_up_cut_ns(),
            ..Part::new(RunPart::WarmUp, 0, schedule.start_ns(), window_start_ns)
        };
        let window = warm_up.next(RunPart::Window, window_end_ns);
        if now_ns < window_start_ns {
            warm_up.span(now_ns)
        } else if now_ns < window_end_ns {
            window.span(now_ns)
        } else {
            window.next(RunPart::Drain, u64::MAX).span(now_ns)
        }
    }
}

/// A stretch of time cut into seconds, or slices of seconds.
struct Part {
    part: RunPart,
    cut_ns: u64,
    first_index: u64,
    start_ns: u64,
    end_ns: u64,
}

impl Part {
    fn new(part: RunPart, first_index: u64, start_ns: u64, end_ns: u64) -> Self {
        Self {
            part,
            cut_ns: SECOND_NS,
            first_index,
            start_ns,
            end_ns,
        }
    }

    fn next(&self, part: RunPart, end_ns: u64) -> Self {
        let pieces = (self.end_ns - self.start_ns).div_ceil(self.cut_ns);
        Self::new(part, self.first_index + pieces, self.end_ns, end_ns)
    }

    fn span(&self, now_ns: u64) -> Span {
        let place = (now_ns - self.start_ns) / self.cut_ns;
        let start_ns = self.start_ns + place * self.cut_ns;
        Span {
            index: self.first_index + place,
            part: self.part,
            is_slice: self.cut_ns < SECOND_NS,
            start_ns,
            end_ns: start_ns.saturating_add(self.cut_ns).min(self.end_ns),
        }
    }
}

/// Running totals of a thread, of which a second takes the difference.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) errors: LoadErrors,
    pub(crate) sent: u64,
    pub(crate) shed: u64,
    pub(crate) received_bytes: u64,
}

/// The record that a thread sends at the end of a second.
pub(crate) struct Handed {
    worker: usize,
    span: Span,
    /// When it was taken: the span's end, or earlier if the thread was stopped.
    end_ns: u64,
    /// The index from which on more may come of this thread.
    next_index: u64,
    clocks: Clocks,
    counts: Counts,
}

/// Between the threads and the supervisor.
#[derive(Debug)]
pub(crate) struct Exchange {
    outbox: Sender<Handed>,
    /// Read by the supervisor alone.
    inbox: Mutex<Receiver<Handed>>,
    /// Empty histograms. Threads only try the lock.
    spares: Mutex<Vec<Clocks>>,
}

impl Exchange {
    pub(crate) fn new(threads: usize) -> Self {
        let (outbox, inbox) = channel();
        Self {
            outbox,
            inbox: Mutex::new(inbox),
            spares: Mutex::new((0..threads).map(|_| Clocks::default()).collect()),
        }
    }

    fn empty_clocks(&self) -> Clocks {
        let spare = self.spares.try_lock().ok().and_then(|mut all| all.pop());
        spare.unwrap_or_default()
    }

    fn give_back(&self, clocks: Clocks) {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        spares.push(clocks);
    }

    fn receive(&self) -> Option<Handed> {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.try_recv().ok()
    }
}

/// A thread's own clock of seconds.
#[derive(Debug)]
pub(crate) struct Seconds {
    worker: usize,
    span: Option<Span>,
    /// From when on [`Self::turn`] has something to do. 0 before the run.
    pub(crate) next_ns: u64,
}

impl Seconds {
    pub(crate) fn new(worker: usize) -> Self {
        Self {
            worker,
            span: None,
            next_ns: 0,
        }
    }

    /// The clock has passed [`Self::next_ns`].
    pub(crate) fn turn(
        &mut self,
        now_ns: u64,
        schedule: &Schedule,
        exchange: &Exchange,
        outcome: &mut Outcome,
    ) {
        let next = Span::at(schedule, now_ns);
        self.hand_over(next.start_ns, next.index, exchange, outcome);
        outcome.is_warm_up = next.part == RunPart::WarmUp;
        self.span = Some(next);
        self.next_ns = next.end_ns;
    }

    /// Nothing more will come.
    pub(crate) fn end(&mut self, now_ns: u64, exchange: &Exchange, outcome: &mut Outcome) {
        self.hand_over(now_ns, u64::MAX, exchange, outcome);
        self.span = None;
        self.next_ns = u64::MAX;
    }

    fn hand_over(
        &mut self,
        now_ns: u64,
        next_index: u64,
        exchange: &Exchange,
        outcome: &mut Outcome,
    ) {
        let Some(span) = self.span.take() else { return };
        let (clocks, counts) = outcome.change(exchange.empty_clocks());
        // Only a supervisor that has gone receives nothing, and then the record is not needed.
        let _ = exchange.outbox.send(Handed {
            worker: self.worker,
            span,
            end_ns: now_ns.clamp(span.start_ns, span.end_ns),
            next_index,
            clocks,
            counts,
        });
    }
}

/// The records that a thread had handed over when it was abandoned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost {
    pub(crate) counts: Counts,
    /// Right responses in the window.
    pub(crate) answers: u64,
}

/// A second that is not complete: some threads have yet to hand it over.
struct Row {
    span: Span,
    end_ns: u64,
    clocks: Clocks,
    counts: Counts,
}

/// The supervisor's side.
pub(crate) struct Timeline<'run> {
    exchange: &'run Exchange,
    /// Of each thread: the index from which on more may come, and what it has handed over so far.
    workers: Vec<(u64, Lost)>,
    rows: BTreeMap<u64, Row>,
    /// The slices so far of a second that is not over.
    slices: Option<Row>,
    /// The rule for a warm-up that ends by itself.
    pub(crate) steadiness: Steadiness,
    /// Sum of the rows that count.
    pub(crate) totals: Clocks,
    /// Of all that were completed, in order.
    pub(crate) seconds: Vec<LoadSecond>,
}

impl<'run> Timeline<'run> {
    pub(crate) fn new(exchange: &'run Exchange, threads: usize) -> Self {
        Self {
            exchange,
            workers: vec![(0, Lost::default()); threads],
            rows: BTreeMap::new(),
            slices: None,
            steadiness: Steadiness::default(),
            totals: Clocks::default(),
            seconds: Vec::new(),
        }
    }

    /// Takes in what the threads sent; `each` gets every second that it completed. `start_ns` is
    /// when sending began.
    pub(crate) fn collect(&mut self, start_ns: u64, each: &mut dyn FnMut(&Second<'_>)) {
        while let Some(handed) = self.exchange.receive() {
            self.take(handed);
        }
        let complete_below = self.workers.iter().map(|(next, _)| *next).min();
        while let Some(entry) = self.rows.first_entry() {
            if Some(*entry.key()) >= complete_below {
                break;
            }
            let row = entry.remove();
            self.join(row, start_ns, each);
        }
        if complete_below == Some(u64::MAX)
            && let Some(row) = self.slices.take()
        {
            self.close(row, start_ns, each);
        }
    }

    /// Waits no longer for what this thread might hand over.
    pub(crate) fn give_up_on(&mut self, worker: usize) -> Lost {
        let (next, lost) = &mut self.workers[worker];
        *next = u64::MAX;
        *lost
    }

    /// Slices of a warm-up go to its judge; all other readers get seconds.
    fn join(&mut self, row: Row, start_ns: u64, each: &mut dyn FnMut(&Second<'_>)) {
        let is_slice = row.span.is_slice;
        if is_slice {
            let duration_ns = row.end_ns - row.span.start_ns;
            self.steadiness.quarter(duration_ns, &row.clocks);
        }
        let row = match self.slices.take() {
            Some(mut second)
                if is_slice && row.span.start_ns < second.span.start_ns + SECOND_NS =>
            {
                second.end_ns = row.end_ns;
                second.clocks.merge(&row.clocks);
                add(&mut second.counts, &row.counts);
                self.recycle(row.clocks);
                second
            }
            Some(second) => {
                self.close(second, start_ns, each);
                row
            }
            None => row,
        };
        if is_slice && row.end_ns - row.span.start_ns < SECOND_NS {
            self.slices = Some(row);
        } else {
            self.close(row, start_ns, each);
        }
    }

    fn take(&mut self, handed: Handed) {
        let Handed {
            worker,
            span,
            end_ns,
            next_index,
            clocks,
            counts,
        } = handed;
        let (next, before) = &mut self.workers[worker];
        *next = next_index;
        let fresh = difference(&counts, &before.counts);
        before.counts = counts;
        if span.part == RunPart::Window {
            before.answers += clocks.response.count();
        }
        match self.rows.get_mut(&span.index) {
            None => {
                let row = Row {
                    span,
                    end_ns,
                    clocks,
                    counts: fresh,
                };
                self.rows.insert(span.index, row);
            }
            Some(row) => {
                row.end_ns = row.end_ns.max(end_ns);
                row.clocks.merge(&clocks);
                add(&mut row.counts, &fresh);
                self.recycle(clocks);
            }
        }
    }

    fn close(&mut self, row: Row, start_ns: u64, each: &mut dyn FnMut(&Second<'_>)) {
        let Row {
            span,
            end_ns,
            clocks,
            counts,
        } = row;
        if span.part != RunPart::WarmUp {
            self.totals.merge(&clocks);
        }
        let duration_ns = end_ns - span.start_ns;
        let requests = clocks.response.count();
        let is_empty = requests == 0 && counts.errors.total() == 0;
        // A drain in which nothing came, or a moment between two ticks, is no second. A moment in which
        // the last response came is one.
        if !is_empty || duration_ns > 0 && span.part != RunPart::Drain {
            let rate = requests as f64 * 1e9 / duration_ns as f64;
            let response_ns = clocks.response.summary();
            let figures = LoadSecond {
                part: span.part,
                second: self.seconds.len() as u64,
                start_ns: span.start_ns.saturating_sub(start_ns),
                duration_ns,
                requests,
                requests_per_s: if duration_ns > 0 { rate } else { 0.0 },
                bytes_received: counts.received_bytes,
                sent: counts.sent,
                shed: counts.shed,
                errors: counts.errors,
                response_ns,
                service_ns: clocks.service_summary(&response_ns),
                slip_ns: clocks.slip.summary(),
            };
            each(&Second {
                figures: &figures,
                clocks: &clocks,
            });
            self.seconds.push(figures);
        }
        self.recycle(clocks);
    }

    fn recycle(&self, mut clocks: Clocks) {
        clocks.clear();
        self.exchange.give_back(clocks);
    }
}

fn difference(now: &Counts, before: &Counts) -> Counts {
    let (one, two) = (&now.errors, &before.errors);
    Counts {
        errors: LoadErrors {
            connect: one.connect - two.connect,
            read: one.read - two.read,
            write: one.write - two.write,
            timeout: one.timeout - two.timeout,
            status: one.status - two.status,
            validation: one.validation - two.validation,
        },
        sent: now.sent - before.sent,
        shed: now.shed - before.shed,
        received_bytes: now.received_bytes - before.received_bytes,
    }
}

fn add(sum: &mut Counts, part: &Counts) {
    add_errors(&mut sum.errors, &part.errors);
    sum.sent += part.sent;
    sum.shed += part.shed;
    sum.received_bytes += part.received_bytes;
}

#[cfg(test)]
#[path = "tests/timeline.rs"]
mod tests;
