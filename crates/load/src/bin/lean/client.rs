//! The loop: a batch of requests on each connection, and the next when all its responses came.

use crate::Config;
use crate::answer::{Answer, BEGINNING};
use millpond_io::{
    Driver, Event, IoError, Protocol, SendOutcome, ShardContext, SocketId, WaitPlan,
};
use millpond_measure::noise::ThreadTimes;
use millpond_mempool::Buffer;
use std::io::Read;
use std::time::Duration;

/// Connections being opened at once: more would overflow a listener's queue and wait a second.
const CONNECTING_MAX: usize = 128;
/// A run in which the server stops responding ends so much later than it should.
const OVERTIME: Duration = Duration::from_secs(5);
/// Longest time to connect all, and for the first responses of those that are held.
const START_NS_MAX: u64 = 60_000_000_000;

/// Where the run stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Connecting,
    WarmUp,
    Window,
    Done,
}

/// The clocks at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    now_ns: u64,
    requests: u64,
    own_cpu: Duration,
    server_cpu: Duration,
}

/// The generator as a shard's protocol.
pub(crate) struct Client {
    config: Config,
    answer: Answer,
    batch: Vec<u8>,
    /// Of each socket's slot: bytes missing from the responses to its batch.
    missing_bytes: Vec<usize>,
    phase: Phase,
    /// When the phase ends, or has failed.
    phase_end_ns: u64,
    asked_count: usize,
    open_count: usize,
    /// Connections whose batch is complete; counted when they are held only.
    answered_count: usize,
    requests: u64,
    begin: Reading,
    end: Reading,
    failure: Option<String>,
}

impl Client {
    pub(crate) fn new(config: Config, answer: Answer) -> Self {
        Self {
            batch: config.request().repeat(config.depth).into_bytes(),
            missing_bytes: vec![0; config.connections],
            config,
            answer,
            phase: Phase::Connecting,
            phase_end_ns: 0,
            asked_count: 0,
            open_count: 0,
            answered_count: 0,
            requests: 0,
            begin: Reading::default(),
            end: Reading::default(),
            failure: None,
        }
    }

    /// Prints what was counted, as one line of JSON.
    pub(crate) fn report(self) -> Result<(), String> {
        if let Some(sentence) = self.failure {
            return Err(sentence);
        }
        if self.config.hold {
            return Ok(());
        }
        let (begin, end) = (self.begin, self.end);
        let window_ns = end.now_ns - begin.now_ns;
        let requests = end.requests - begin.requests;
        let own_cpu_ns = (end.own_cpu - begin.own_cpu).as_nanos();
        let server_cpu_ns = match self.config.server_pid {
            Some(_) => (end.server_cpu - begin.server_cpu).as_nanos().to_string(),
            None => "null".to_owned(),
        };
        println!(
            "{{\"requests\": {requests}, \"window_ns\": {window_ns}, \
             \"generator_cpu_ns\": {own_cpu_ns}, \"server_cpu_ns\": {server_cpu_ns}, \
             \"requests_in_all\": {}}}",
            self.requests
        );
        Ok(())
    }

    fn fail(&mut self, sentence: String) {
        self.failure.get_or_insert(sentence);
        self.phase = Phase::Done;
    }

    fn open_more<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) -> Result<(), IoError> {
        while self.asked_count < self.config.connections
            && self.asked_count - self.open_count < CONNECTING_MAX
        {
            shard.driver.connect(&self.config.address)?;
            self.asked_count += 1;
        }
        Ok(())
    }

    fn connected<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        self.open_count += 1;
        if self.missing_bytes.len() <= socket.slot() {
            self.missing_bytes.resize(socket.slot() + 1, 0);
        }
        self.send_batch(shard, socket);
        if let Err(error) = self.open_more(shard) {
            self.fail(error.to_string());
        }
    }

    #[inline]
    fn send_batch<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        let pool = &shard.pools.blocks;
        let mut batch = match Buffer::with_capacity(pool, self.batch.len()) {
            Ok(batch) => batch,
            Err(error) => return self.fail(error.to_string()),
        };
        batch.append_within_capacity(&self.batch);
        self.missing_bytes[socket.slot()] = self.answer.len * self.config.depth;
        // A kernel that is full has most of the batch, and its responses are what comes next anyhow.
        let (SendOutcome::Done | SendOutcome::Blocked) = shard.driver.send(socket, batch);
    }

    #[inline]
    fn received<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
        bytes: &[u8],
    ) {
        let missing_bytes = self.missing_bytes[socket.slot()];
        let is_first = missing_bytes == self.answer.len * self.config.depth;
        if bytes.len() > missing_bytes || is_first && !begins_well(bytes) {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
            return self.fail(format!("a response is not like the first: {text}"));
        }
        let missing_bytes = missing_bytes - bytes.len();
        self.missing_bytes[socket.slot()] = missing_bytes;
        if missing_bytes > 0 {
            return;
        }
        if !bytes.ends_with(&self.answer.body) && !self.answer.body.ends_with(bytes) {
            return self.fail("a response ends unlike the first".to_owned());
        }
        self.requests += self.config.depth as u64;
        if self.config.hold {
            self.answered_count += 1;
        } else {
            self.send_batch(shard, socket);
        }
    }

    fn read_clocks<D: Driver>(&self, shard: &ShardContext<'_, D>) -> Result<Reading, String> {
        let server_cpu = self.config.server_pid.map(cpu_time_of).transpose()?;
        Ok(Reading {
            now_ns: shard.driver.clock_ns(),
            requests: self.requests,
            own_cpu: cpu_time_of(std::process::id())?,
            server_cpu: server_cpu.unwrap_or_default(),
        })
    }

    fn has_answers_or_is_late(&self, now_ns: u64) -> bool {
        let late_ns = now_ns.saturating_sub(self.phase_end_ns);
        self.requests > self.begin.requests || late_ns > OVERTIME.as_nanos() as u64
    }

    fn go_on<D: Driver>(&mut self, shard: &ShardContext<'_, D>) -> Result<(), String> {
        let now_ns = shard.now_ns;
        let is_over = now_ns >= self.phase_end_ns;
        let after = |duration: Duration| now_ns + duration.as_nanos() as u64;
        match self.phase {
            Phase::Connecting if self.config.hold => {
                if self.answered_count == self.config.connections {
                    wait_for_end(self.answered_count)?;
                    self.phase = Phase::Window;
                } else if is_over {
                    return Err(format!("{} connections answered", self.answered_count));
                }
            }
            // One more turn of the loop has seen what became of them meanwhile.
            Phase::Window if self.config.hold => self.phase = Phase::Done,
            Phase::Connecting if self.open_count == self.config.connections => {
                self.phase = Phase::WarmUp;
                self.phase_end_ns = after(self.config.warm_up);
            }
            Phase::Connecting if is_over => {
                return Err(format!("{} connections stand", self.open_count));
            }
            Phase::WarmUp if is_over => {
                self.begin = self.read_clocks(shard)?;
                self.phase = Phase::Window;
                self.phase_end_ns = after(self.config.window);
            }
            // A short window on a busy machine may pass between two turns of the server.
            Phase::Window if is_over && self.has_answers_or_is_late(now_ns) => {
                self.end = self.read_clocks(shard)?;
                self.phase = Phase::Done;
                if self.end.requests == self.begin.requests {
                    return Err("no request was answered".to_owned());
                }
                let late_ns = now_ns - self.phase_end_ns;
                if late_ns > OVERTIME.as_nanos() as u64 {
                    return Err("the window ended late: is the CPU shared?".to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The whole beginning may not have come yet.
fn begins_well(bytes: &[u8]) -> bool {
    bytes.starts_with(BEGINNING) || BEGINNING.starts_with(bytes)
}

/// Says how many are held and sleeps, the connections with it, until standard input ends.
fn wait_for_end(count: usize) -> Result<(), String> {
    println!("holding {count}");
    let mut rest = Vec::new();
    let outcome = std::io::stdin().read_to_end(&mut rest);
    outcome.map_err(|error| format!("standard input: {error}"))?;
    Ok(())
}

impl<D: Driver> Protocol<D> for Client {
    fn started(&mut self, shard: &mut ShardContext<'_, D>) -> Result<(), IoError> {
        self.phase_end_ns = shard.now_ns + START_NS_MAX;
        self.open_more(shard)
    }

    #[inline]
    fn event(&mut self, shard: &mut ShardContext<'_, D>, event: Event<'_>) {
        match event {
            Event::Received { socket, bytes } => self.received(shard, socket, bytes),
            Event::Connected { socket } => self.connected(shard, socket),
            Event::Failed { error, .. } => self.fail(format!("a connection failed: {error}")),
            Event::PeerFinished { .. } => self.fail("the server closed a connection".to_owned()),
            _ => {}
        }
    }

    fn tick_ended(&mut self, shard: &mut ShardContext<'_, D>) {
        if let Err(sentence) = self.go_on(shard) {
            self.fail(sentence);
        }
    }

    fn stop_requested(&mut self, _shard: &mut ShardContext<'_, D>) {
        self.phase = Phase::Done;
    }

    fn finished(&self) -> bool {
        self.phase == Phase::Done
    }

    fn wait_plan(&mut self, now_ns: u64) -> WaitPlan {
        let is_looking = self.config.spin || self.config.hold && self.phase == Phase::Window;
        WaitPlan {
            deadline_ns: Some(if is_looking {
                now_ns
            } else {
                self.phase_end_ns
            }),
            ..WaitPlan::default()
        }
    }
}

/// User and kernel time of all threads of a process so far.
fn cpu_time_of(pid: u32) -> Result<Duration, String> {
    let tasks = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
    let mut total_ns = 0;
    for task in entries.flatten() {
        // A thread may end while the list is read.
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        total_ns += ThreadTimes::parse(&text).map_or(0, |times| times.cpu_ns);
    }
    Ok(Duration::from_nanos(total_ns))
}
