//! The memory of a server for 10,000 connections, a tenth of them in the middle of a request.
//!
//! A request takes a read buffer, six temporaries of recorded sizes which go again in the order in
//! which they came, and a write buffer of 1, 2, 4 or 16 KiB; both buffers stay until 1,000 later
//! requests have begun, as responses wait for their readers. An idle connection keeps its object and
//! nothing else. The tables are made beforehand.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::counters::Timed;
use crate::memory;
use crate::memory::{Memory, Objects};
use crate::sizes::Sizes;
use crate::subject::Cpus;
use crate::tagged::Handover;
use crate::tagged::Tagged;

use super::churn::{Mixed, operations};
use super::{ALLOCATIONS_PER_ITERATION, Outcome, PerConnection, Plan, WARM_UP_ITERATIONS};

const CONNECTION_COUNT: usize = 10_000;
const UNDER_WAY_COUNT: usize = 1_000;
const REQUESTS_PER_ITERATION: u64 = 17;
const TEMPORARY_COUNT: usize = 6;
const READ_BYTES: usize = 4096;
const WRITE_BYTES: [usize; 4] = [1024, 2048, 4096, 16_384];
/// Each request: both buffers and the temporaries, taken and given back.
const OPERATIONS_PER_REQUEST: u64 = 2 * (2 + TEMPORARY_COUNT as u64);
/// Idle seconds are ticks; after these few nothing more is expected to go back.
const IDLE_SECONDS_MAX: u64 = 5;

/// State of a connection: parser, timers, counts, addresses.
struct Connection {
    request_count: u64,
    state: [u64; 39],
}

const _: () = assert!(size_of::<Connection>() == 320);

/// Buffers of a request whose response waits.
struct UnderWay<B> {
    connection: usize,
    read: Tagged<B>,
    write: Tagged<B>,
}

struct Server<M: Memory> {
    memory: M,
    objects: M::Objects<Connection>,
    connections: Vec<Option<M::Object<Connection>>>,
    is_busy: Vec<bool>,
    under_way: VecDeque<UnderWay<M::Block>>,
    asked_bytes: u64,
    sizes: Sizes,
    rng: Rng,
    checksum: u64,
}

impl<M: Memory> Server<M> {
    fn new(plan: &Plan) -> Self {
        let mut rng = Rng::with_seed(plan.seed);
        let memory = M::new();
        Self {
            objects: memory.objects(),
            memory,
            connections: (0..CONNECTION_COUNT).map(|_| None).collect(),
            is_busy: vec![false; CONNECTION_COUNT],
            under_way: VecDeque::with_capacity(UNDER_WAY_COUNT + 1),
            asked_bytes: 0,
            sizes: Sizes::draw(&mut rng),
            rng,
            checksum: 0,
        }
    }

    fn open_all(&mut self) {
        for (number, connection) in self.connections.iter_mut().enumerate() {
            *connection = Some(self.objects.insert(Connection {
                request_count: 0,
                state: [number as u64; 39],
            }));
        }
        self.asked_bytes += (CONNECTION_COUNT * size_of::<Connection>()) as u64;
    }

    #[inline(never)]
    fn serve(&mut self, request_count: u64) {
        for _ in 0..request_count {
            let number = self.idle_connection();
            if let Some(connection) = &mut self.connections[number] {
                connection.request_count += 1;
                let state = black_box(connection.state[0]);
                self.checksum = self.checksum.wrapping_add(state);
            }
            self.begin(number);
            if self.under_way.len() > UNDER_WAY_COUNT {
                self.finish_oldest();
            }
        }
    }

    /// A random one that is not in the middle of a request: at most one in ten is.
    fn idle_connection(&mut self) -> usize {
        loop {
            let number = self.rng.usize(..CONNECTION_COUNT);
            if !self.is_busy[number] {
                self.is_busy[number] = true;
                return number;
            }
        }
    }

    fn begin(&mut self, connection: usize) {
        let tag = connection as u64;
        let read = Tagged::new(self.memory.block(READ_BYTES), READ_BYTES, tag);
        let mut temporaries = [const { None }; TEMPORARY_COUNT];
        for temporary in &mut temporaries {
            let size_bytes = self.sizes.next();
            *temporary = Some(Tagged::new(self.memory.block(size_bytes), size_bytes, tag));
        }
        let write_bytes = self.rng.choice(WRITE_BYTES).unwrap_or(READ_BYTES);
        let write = Tagged::new(self.memory.block(write_bytes), write_bytes, tag);
        for mut temporary in temporaries.into_iter().flatten() {
            self.checksum = self.checksum.wrapping_add(temporary.tag());
        }
        self.asked_bytes += (READ_BYTES + write_bytes) as u64;
        self.under_way.push_back(UnderWay {
            connection,
            read,
            write,
        });
    }

    fn finish_oldest(&mut self) {
        let Some(mut oldest) = self.under_way.pop_front() else {
            return;
        };
        self.is_busy[oldest.connection] = false;
        let tags = oldest.read.tag().wrapping_add(oldest.write.tag());
        self.checksum = self.checksum.wrapping_add(tags);
        self.asked_bytes -= (oldest.read.size_bytes() + oldest.write.size_bytes()) as u64;
    }

    fn finish_all(&mut self) {
        while !self.under_way.is_empty() {
            self.finish_oldest();
        }
    }

    /// Closes everything and checks that no state was overwritten.
    fn close_all(&mut self) {
        for (number, connection) in self.connections.iter_mut().enumerate() {
            let Some(handle) = connection.take() else {
                continue;
            };
            let is_whole = handle.state.iter().all(|&word| word == number as u64);
            assert!(is_whole, "connection {number} lost its state");
            self.checksum = self.checksum.wrapping_add(handle.request_count);
            self.objects.remove(handle);
        }
    }
}

pub(super) fn run<M: Memory>(plan: &Plan) -> Outcome {
    let mut server = Server::<M>::new(plan);
    let base_bytes = memory::anonymous_bytes();
    let per_connection = |bytes: u64| bytes as f64 / CONNECTION_COUNT as f64;
    let rss = || per_connection(memory::anonymous_bytes().saturating_sub(base_bytes));
    server.open_all();
    let request_count = plan.iterations * REQUESTS_PER_ITERATION;
    server.serve(UNDER_WAY_COUNT as u64 + WARM_UP_ITERATIONS * REQUESTS_PER_ITERATION);
    let timed = Timed::of(|| server.serve(request_count));
    let (active_bytes, asked_active_bytes) = (rss(), per_connection(server.asked_bytes));
    (plan.on_idle)();
    server.finish_all();
    for _ in 0..plan.idle_seconds.min(IDLE_SECONDS_MAX) {
        thread::sleep(Duration::from_secs(1));
        server.serve(1);
        server.finish_all();
        server.memory.trim();
        server.objects.trim();
    }
    let per_connection = PerConnection {
        active_bytes,
        idle_bytes: rss(),
        asked_active_bytes,
        asked_idle_bytes: per_connection(server.asked_bytes),
    };
    server.close_all();
    let operations = request_count * OPERATIONS_PER_REQUEST;
    let mut outcome = Outcome::new(operations, timed, server.checksum);
    outcome.per_connection = Some(per_connection);
    outcome
}

// Memory that is taken by one thread and given back by another.
//
// The consumer sends home what it freed only when it finds nothing to do, as a shard does before it
// sleeps; the producer takes home what came back once for each batch, as a shard does in each tick.

/// Handed over at once: half an iteration.
const BATCH_COUNT: u64 = ALLOCATIONS_PER_ITERATION / 2;
const WORD_COUNT: usize = 16;

/// 128 bytes, all of them written by the producer and read by the consumer.
struct Message([u64; WORD_COUNT]);

impl Message {
    #[inline]
    const fn new(number: u64) -> Self {
        Self([number; WORD_COUNT])
    }

    #[inline]
    fn number(&self) -> u64 {
        let number = self.0[0];
        assert!(
            self.0.iter().all(|&word| word == number),
            "a message arrived damaged"
        );
        number
    }
}

/// Objects of one type.
pub(super) fn producer_consumer_run<M: Memory>(plan: &Plan) -> Outcome {
    let mut messages = M::new().objects::<Message>();
    let mut number = 0;
    let fill = |batch: &mut Vec<M::Object<Message>>| {
        messages.drain();
        for _ in 0..BATCH_COUNT {
            number += 1;
            batch.push(messages.insert(Message::new(number)));
        }
    };
    run_with::<M, _>(plan, fill, |message| message.number())
}

/// Blocks of recorded sizes.
pub(super) fn run_mixed<M: Memory>(plan: &Plan) -> Outcome {
    let memory = M::new();
    let mut sizes = Sizes::draw(&mut Rng::with_seed(plan.seed));
    let mut number = 0;
    let fill = |batch: &mut Vec<Tagged<M::Block>>| {
        memory.drain();
        for _ in 0..BATCH_COUNT {
            number += 1;
            let size_bytes = sizes.next();
            batch.push(Tagged::new(memory.block(size_bytes), size_bytes, number));
        }
    };
    run_with::<M, _>(plan, fill, Tagged::tag)
}

/// Produces here, consumes in another thread. `fill` appends a batch; `number_of` reads what is about
/// to be freed.
fn run_with<M: Memory, T: Send>(
    plan: &Plan,
    mut fill: impl FnMut(&mut Vec<T>),
    number_of: impl Fn(&mut T) -> u64 + Sync,
) -> Outcome {
    let cpus = Cpus::allowed();
    let ring = Handover::new(BATCH_COUNT as usize);
    let start = Barrier::new(2);
    let (warm_up, batches) = (2 * WARM_UP_ITERATIONS, 2 * plan.iterations);
    let mut produce = |batch: &mut Vec<T>, count: u64| {
        for _ in 0..count {
            fill(batch);
            ring.give(batch);
        }
    };
    let consume = |batch: &mut Vec<T>, count: u64| {
        let mut checksum = 0_u64;
        for _ in 0..count {
            ring.take(batch, M::flush);
            for mut item in batch.drain(..) {
                checksum = checksum.wrapping_add(number_of(&mut item));
            }
        }
        checksum
    };
    let (produced, consumed) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            cpus.pin(1);
            let mut batch = Vec::with_capacity(BATCH_COUNT as usize);
            consume(&mut batch, warm_up);
            start.wait();
            let mut checksum = 0;
            let timed = Timed::of(|| checksum = consume(&mut batch, batches));
            (timed, checksum)
        });
        cpus.pin(0);
        let mut batch = Vec::with_capacity(BATCH_COUNT as usize);
        produce(&mut batch, warm_up);
        start.wait();
        let produced = Timed::of(|| produce(&mut batch, batches));
        (produced, consumer.join())
    });
    let (consumed, checksum) = consumed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let operations = 2 * BATCH_COUNT * batches;
    Outcome::new(operations, produced.beside(consumed), checksum)
}

// `mixed` in two threads at once, each with memory of its own: what an allocator shares shows.

const THREAD_COUNT: usize = 2;

pub(super) fn two_threads_run<M: Memory>(plan: &Plan) -> Outcome {
    let cpus = Cpus::allowed();
    let start = Barrier::new(THREAD_COUNT);
    let work = |number: u64| {
        cpus.pin(number as usize);
        let mut mixed = Mixed::<M>::new(plan.seed.wrapping_add(number));
        mixed.iterate(WARM_UP_ITERATIONS);
        start.wait();
        let mut checksum = 0;
        let timed = Timed::of(|| checksum = mixed.iterate(plan.iterations));
        // No thread tidies up while the other is still being timed.
        start.wait();
        (timed, checksum)
    };
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| work(1));
        (work(0), other.join())
    });
    let other = other.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Outcome::new(
        THREAD_COUNT as u64 * operations(plan.iterations),
        one.0.beside(other.0),
        one.1.wrapping_add(other.1),
    )
}

#[cfg(test)]
#[path = "tests/connections.rs"]
mod tests;
