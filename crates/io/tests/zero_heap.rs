//! No heap in steady state: an echo shard over real loopback sockets, counted call by call.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(unsafe_code)]

use millpond_io::{
    Driver, EpollDriver, Event, IoError, ListenOptions, Listener, Protocol, SendOutcome, Shard,
    ShardConfig, ShardContext, TimerId, UringDriver,
};
use millpond_mempool::{Buffer, PoolMode};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

/// Heap calls of the threads that asked to be counted.
static HEAP_CALLS: AtomicU64 = AtomicU64::new(0);

/// No more heap calls are expected: each reports its origin.
static IS_WARM: AtomicBool = AtomicBool::new(false);

/// Sends of the shard that blocked.
static SENDS_BLOCKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

struct CountingAllocator;

fn count() {
    // A thread that is ending has no thread-locals any more; the shard is not.
    if IS_COUNTED.try_with(Cell::get).unwrap_or(false) {
        HEAP_CALLS.fetch_add(1, Ordering::Relaxed);
        if IS_WARM.load(Ordering::Relaxed) {
            // Names the caller; its own calls are not counted.
            IS_COUNTED.set(false);
            eprintln!("{}", std::backtrace::Backtrace::force_capture());
            IS_COUNTED.set(true);
        }
    }
}

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's duties are exactly the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's duties are exactly the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's duties are exactly the system allocator's.
        unsafe { System.realloc(pointer, layout, new_bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The largest size class; larger blocks are malloc's by design.
const POOLED_BYTES_MAX: usize = 32 << 10;

const IDLE_TIMEOUT_NS: u64 = 75_000_000_000;

/// Echoes, with one idle timer per connection, as a server has.
#[derive(Default)]
struct Echo {
    /// By socket slot.
    timers: Vec<Option<TimerId>>,
    connections: usize,
    is_stopping: bool,
}

impl<D: Driver> Protocol<D> for Echo {
    fn started(&mut self, shard: &mut ShardContext<'_, D>) -> Result<(), IoError> {
        // How large a receive gets is up to the kernel, so each size class is warmed up by hand.
        for size_bytes in (64..=POOLED_BYTES_MAX).step_by(64) {
            let warm = || Buffer::with_capacity(&shard.pools.blocks, size_bytes).unwrap();
            let _all_at_once = [warm(), warm(), warm(), warm()];
        }
        IS_COUNTED.set(true);
        Ok(())
    }

    fn event(&mut self, shard: &mut ShardContext<'_, D>, event: Event<'_>) {
        match event {
            Event::Accepted { socket, .. } => {
                self.connections += 1;
                if self.timers.len() <= socket.slot() {
                    self.timers.resize(socket.slot() + 1, None);
                }
                let timer = shard.timers.create(socket.to_bits());
                shard.timers.set(timer, shard.now_ns + IDLE_TIMEOUT_NS);
                self.timers[socket.slot()] = Some(timer);
            }
            Event::Received { socket, bytes } => {
                if let Some(timer) = self.timers[socket.slot()] {
                    shard.timers.set(timer, shard.now_ns + IDLE_TIMEOUT_NS);
                }
                for piece in bytes.chunks(POOLED_BYTES_MAX) {
                    let mut data = Buffer::new();
                    data.extend_from_slice(&shard.pools.blocks, piece).unwrap();
                    if shard.driver.send(socket, data) == SendOutcome::Blocked {
                        SENDS_BLOCKED.fetch_add(1, Ordering::Relaxed);
                        shard.driver.pause_receive(socket);
                    }
                }
            }
            Event::SendBlocked { socket } => {
                SENDS_BLOCKED.fetch_add(1, Ordering::Relaxed);
                shard.driver.pause_receive(socket);
            }
            Event::SendDrained { socket } => shard.driver.resume_receive(socket),
            Event::PeerFinished { socket } => {
                shard.driver.close_after_send(socket);
                self.forget(shard, socket.slot());
            }
            Event::Failed { socket, .. } => self.forget(shard, socket.slot()),
            _ => {}
        }
    }

    fn stop_requested(&mut self, shard: &mut ShardContext<'_, D>) {
        shard.driver.stop_listening();
        self.is_stopping = true;
    }

    fn finished(&self) -> bool {
        self.is_stopping && self.connections == 0
    }
}

impl Echo {
    fn forget<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, slot: usize) {
        if let Some(timer) = self.timers[slot].take() {
            shard.timers.remove(timer);
        }
        self.connections -= 1;
    }
}

/// Goal: after warm-up no message costs a heap call, nor does a connection that comes and goes,
/// nor a peer that blocks and drains.
#[test]
fn steady_state_makes_no_heap_call() {
    count_heap_calls_of(EpollDriver::new);
    match millpond_io::driver::uring::probe() {
        Ok(_) => count_heap_calls_of(UringDriver::new),
        Err(why) => eprintln!("not tested: {why}"),
    }
}

fn count_heap_calls_of<D: Driver + 'static>(make: fn(PoolMode) -> Result<D, IoError>) {
    HEAP_CALLS.store(0, Ordering::Relaxed);
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let config = ShardConfig {
            index: 0,
            cpu: None,
            pool_mode: PoolMode::On,
        };
        let mut shard = Shard::new(config, make(PoolMode::On).unwrap());
        let loopback = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&loopback, ListenOptions::default()).unwrap();
        let address = listener.local_address().inet().unwrap();
        shard.driver().listen(listener).unwrap();
        tell.send((address, shard.stop_handle())).unwrap();
        shard.run(&mut Echo::default()).unwrap()
    });
    let (address, stop) = told.recv().unwrap();

    let mut steady: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut work = |rounds: usize| {
        for round in 0..rounds {
            for peer in &mut steady {
                echo_small(peer);
            }
            if round % 16 == 0 {
                let mut short_lived = TcpStream::connect(address).unwrap();
                echo_small(&mut short_lived);
                if round % 128 == 0 {
                    echo_until_blocked(&mut short_lived);
                }
            }
        }
    };
    // More connections at once than later: their tables have grown when counting begins.
    let mut many: Vec<_> = (0..64)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    many.iter_mut().for_each(echo_small);
    drop(many);
    work(400);
    // A counter that sees nothing would pass any test: the first connections did allocate.
    assert!(HEAP_CALLS.load(Ordering::Relaxed) > 0);
    HEAP_CALLS.store(0, Ordering::Relaxed);
    IS_WARM.store(true, Ordering::Relaxed);
    work(1_600);
    IS_WARM.store(false, Ordering::Relaxed);
    assert_eq!(
        HEAP_CALLS.load(Ordering::Relaxed),
        0,
        "heap calls after warm-up"
    );

    drop(steady);
    stop.request_stop();
    let report = thread.join().unwrap();
    let counters = report.driver;
    assert!(
        counters.sends_blocked > 0,
        "no peer ever blocked: {counters:?}"
    );
    assert_eq!(counters.accepted, 8 + 64 + 125);
}

fn echo_small(peer: &mut TcpStream) {
    let message = *b"GET / HTTP/1.1\r\nHost: pond\r\n\r\n";
    let mut answer = [0; 30];
    peer.write_all(&message).unwrap();
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(answer, message);
}

/// Sends without reading until the shard blocks, then reads everything.
fn echo_until_blocked(peer: &mut TcpStream) {
    let blocked_before = SENDS_BLOCKED.load(Ordering::Relaxed);
    let piece = [7; 32 << 10];
    let mut unread_bytes = 0;
    // A blocked shard stops reading, so this end must not block meanwhile.
    peer.set_nonblocking(true).unwrap();
    while SENDS_BLOCKED.load(Ordering::Relaxed) == blocked_before {
        match peer.write(&piece) {
            Ok(sent) => unread_bytes += sent as u64,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    peer.set_nonblocking(false).unwrap();
    let mut answer = Vec::new();
    peer.take(unread_bytes).read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len() as u64, unread_bytes);
    assert!(answer.iter().all(|byte| *byte == 7));
}
