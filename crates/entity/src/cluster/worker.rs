//! The thread that talks to the cluster.
//!
//! It takes jobs and scans off the shards' queues, starts a task for each, and returns each when its copies have
//! responded. The driver's own tasks run here too: one thread, one executor, no locks. A write gets its time here, when
//! it is taken, so the order in which shards send writes is the order of their times. Its own work for a request takes
//! microseconds; the cluster's response takes milliseconds.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond_http::log::LogLevel;
use millpond_http::{BodyBudget, log};
use millpond_mempool::{BlockPool, PoolMode, flush_remote_frees};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::Node;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::statement::Consistency;
use tokio::sync::{Mutex, Notify, Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_local};

use crate::budget::Sweeps;
use crate::commit::{Job, JobKind, Outcome};
use crate::executor::JobQueue;
use crate::scanner::{Ask, ScanJob, ScanQueue, Turn};
use crate::work_queue::Taken;

use super::plan::Level;
use super::scan::ClusterScan;
use super::statements::Statements;
use super::{ClusterError, ClusterSecurity, ClusterUrl, Facts, plan, security, statements, write};

/// When a response cannot come any more: nodes time out after 2 s (writes) or 5 s (reads).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// When a silent node is suspected, and another one asked what may be asked twice.
const SUSPICION: Duration = Duration::from_millis(250);

/// How often a connection without traffic is tried, and how long the response may take.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Jobs that are with the nodes at once; others wait here, where they cost nothing.
const JOBS_MAX: usize = 1024;

/// Questions of range reads that are with the nodes at once: single reads come between them.
const QUESTIONS_MAX: usize = 32;

/// How often connections are checked, and idle memory is returned.
const TICK: Duration = Duration::from_secs(1);

/// State shared by the tasks.
pub(super) struct Cluster {
    pub(super) session: Session,
    pub(super) statements: Statements,
    pub(super) buckets: u16,
    pub(super) values: BlockPool,
    /// Without an end: values are 1 MiB at most, and ranges few.
    pub(super) large: BodyBudget,
    pub(super) complaints: Complaints,
    /// One for each partition: the job that may have a transaction under way in it.
    pub(super) turns: Box<[Mutex<()>]>,
    pub(super) questions: Semaphore,
    replicas: u16,
    jobs: Semaphore,
    /// Jobs that were taken and have no result yet.
    under_way: Cell<usize>,
    /// Notified when there are none.
    idle: Notify,
    /// The time of the last write.
    last_us: Cell<i64>,
}

impl Cluster {
    pub(super) fn level(&self, acks: u16) -> Level {
        Level::of(acks, self.replicas)
    }

    /// Microseconds since 1970, never the same twice.
    fn tick_us(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_us = since.unwrap_or_default().as_micros() as i64;
        let us = now_us.max(self.last_us.get() + 1);
        self.last_us.set(us);
        us
    }
}

/// Work of the thread once it is connected.
struct Work {
    jobs: JobQueue,
    scans: ScanQueue,
    pool_mode: PoolMode,
}

/// A connected thread that has nothing to do yet. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Starter {
    work: oneshot::Sender<Work>,
    thread: JoinHandle<()>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Work")
    }
}

impl Starter {
    /// Lets it work until both queues are closed and empty.
    pub(crate) fn start(
        self,
        jobs: JobQueue,
        scans: ScanQueue,
        pool_mode: PoolMode,
    ) -> JoinHandle<()> {
        let work = Work {
            jobs,
            scans,
            pool_mode,
        };
        let sent = self.work.send(work);
        assert!(
            sent.is_ok(),
            "the thread waits for work, and does nothing else"
        );
        self.thread
    }
}

/// Connects on a new thread, and waits for the outcome.
pub(super) fn connect(
    url: &ClusterUrl,
    security: &ClusterSecurity,
    nodes_connected: Arc<AtomicUsize>,
) -> Result<(Facts, Starter), ClusterError> {
    let (outcome_sender, outcome) = mpsc::channel();
    let (work, work_receiver) = oneshot::channel::<Work>();
    let (url, security) = (url.clone(), security.clone());
    let thread = thread::Builder::new().name("store-cluster".to_owned());
    let thread = thread.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                // The client waits for this.
                let _ = outcome_sender.send(Err(ClusterError::Thread(error.to_string())));
                return;
            }
        };
        runtime.block_on(async {
            let (cluster, facts) = match open(&url, &security).await {
                Ok(opened) => opened,
                Err(error) => {
                    let _ = outcome_sender.send(Err(error));
                    return;
                }
            };
            let _ = outcome_sender.send(Ok(facts.clone()));
            // An error: the engine was dropped without being served.
            if let Ok(work) = work_receiver.await {
                let cluster = cluster(work.pool_mode);
                let tasks = LocalSet::new();
                tasks.run_until(run(cluster, work, &nodes_connected)).await;
            }
        });
    });
    let thread = thread.map_err(|error| ClusterError::Thread(error.to_string()))?;
    let dead = || ClusterError::Thread("it ended before it was connected".to_owned());
    let facts = outcome.recv().map_err(|_| dead())??;
    Ok((facts, Starter { work, thread }))
}

/// The address and settings to connect with; the pool comes with the work.
async fn open(
    url: &ClusterUrl,
    security: &ClusterSecurity,
) -> Result<(impl FnOnce(PoolMode) -> Rc<Cluster> + use<>, Facts), ClusterError> {
    let suspicion = SimpleSpeculativeExecutionPolicy {
        max_retry_count: 1,
        retry_interval: SUSPICION,
    };
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .speculative_execution_policy(Some(Arc::new(suspicion)))
        .build();
    let session = SessionBuilder::new()
        .known_nodes(&url.nodes)
        .keyspaces_to_fetch([&url.keyspace])
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .default_execution_profile_handle(profile.into_handle());
    let session = security::secure(session, url, security)?;
    let session = Box::pin(session.build()).await;
    let session = session.map_err(|error| security::refusal(&error, url, security))?;
    let facts = Box::pin(statements::prepare(&session, url)).await?;
    let statements = Statements::prepare(&session, &url.keyspace, facts.conditions);
    let statements = Box::pin(statements)
        .await
        .map_err(|error| ClusterError::Schema {
            operation: format!("use the tables of keyspace {}", url.keyspace),
            cause: error.to_string(),
        })?;
    let (buckets, replicas) = (facts.buckets, facts.replicas);
    let cluster = move |pool_mode| {
        Rc::new(Cluster {
            session,
            statements,
            buckets,
            values: BlockPool::new("values from the cluster", pool_mode),
            large: BodyBudget::new(u64::MAX, u64::MAX),
            complaints: Complaints::default(),
            turns: (0..buckets).map(|_| Mutex::new(())).collect(),
            questions: Semaphore::new(QUESTIONS_MAX),
            replicas,
            jobs: Semaphore::new(JOBS_MAX),
            under_way: Cell::new(0),
            idle: Notify::new(),
            last_us: Cell::new(0),
        })
    };
    Ok((cluster, facts))
}

async fn run(cluster: Rc<Cluster>, work: Work, nodes_connected: &Arc<AtomicUsize>) {
    let (jobs, scans) = (Rc::new(work.jobs), Rc::new(work.scans));
    let open = Rc::new(RefCell::new(Scans::default()));
    let used = Rc::new(Cell::new(false));
    let monitor = spawn_local(keep(
        Rc::clone(&cluster),
        Rc::clone(&used),
        Arc::clone(nodes_connected),
    ));
    let (mut queued, mut asked) = (Vec::new(), Vec::new());
    loop {
        let is_open = poll_fn(|context| {
            let jobs = jobs.poll_take_all(&mut queued, context);
            let scans = scans.poll_take_all(&mut asked, context);
            match (jobs, scans) {
                (Poll::Ready(Taken::Work), _) | (_, Poll::Ready(Taken::Work)) => Poll::Ready(true),
                (Poll::Ready(_), Poll::Ready(_)) => Poll::Ready(false),
                _ => Poll::Pending,
            }
        });
        if !is_open.await {
            break;
        }
        cluster.values.drain_remote();
        used.set(true);
        for job in queued.drain(..) {
            let at_us = cluster.tick_us();
            cluster.under_way.set(cluster.under_way.get() + 1);
            spawn_local(do_job(Rc::clone(&cluster), Rc::clone(&jobs), job, at_us));
        }
        for job in asked.drain(..) {
            do_scan(&cluster, &scans, &open, job);
        }
        // Ids and values came from the shards' pools.
        flush_remote_frees();
    }
    // Every accepted job has its result.
    while cluster.under_way.get() > 0 {
        cluster.idle.notified().await;
    }
    monitor.abort();
    flush_remote_frees();
}

/// Background work apart from requests.
async fn keep(cluster: Rc<Cluster>, used: Rc<Cell<bool>>, nodes_connected: Arc<AtomicUsize>) {
    let mut sweeps = Sweeps::default();
    let mut absent_before = Vec::new();
    loop {
        let state = cluster.session.get_cluster_state();
        let nodes = state.get_nodes_info();
        let absent = nodes.iter().filter(|node| !node.is_connected());
        let address = |node: &Arc<Node>| SocketAddr::new(node.address.ip(), node.address.port());
        let absent: Vec<SocketAddr> = absent.map(address).collect();
        nodes_connected.store(nodes.len() - absent.len(), Ordering::Relaxed);
        if absent != absent_before {
            tell_absent(nodes.len(), &absent);
            absent_before = absent;
        }
        cluster.values.drain_remote();
        let now = Instant::now();
        if used.take() {
            sweeps.note_use(now);
        }
        sweeps.sweep_if_due(now, || cluster.values.trim());
        flush_remote_frees();
        tokio::time::sleep(TICK).await;
    }
}

/// Logs when nodes come and go: one with a wrong certificate or port never comes up.
fn tell_absent(count: usize, absent: &[SocketAddr]) {
    match absent {
        [] => log::write(
            LogLevel::Info,
            format_args!("all {count} nodes of the cluster are connected"),
        ),
        _ => log::write(
            LogLevel::Warn,
            format_args!(
                "{} of {count} nodes of the cluster are not connected: {absent:?}",
                absent.len()
            ),
        ),
    }
}

async fn do_job(cluster: Rc<Cluster>, jobs: Rc<JobQueue>, mut job: Job, at_us: i64) {
    let _permit = cluster.jobs.acquire().await;
    let outcome = match job.kind {
        JobKind::Get => plan::read(&cluster, &mut job).await,
        JobKind::Put | JobKind::Delete => write::write(&cluster, &job, at_us).await,
        // For engines that keep values in parts (`Engine::keeps_parts`); not used with a cluster.
        JobKind::Part | JobKind::GetPart | JobKind::Judge | JobKind::Hold => Outcome::Rejected,
    };
    // Other servers write too, without notice: nothing may be cached.
    job.stamp = None;
    jobs.answer(job, outcome);
    cluster.under_way.set(cluster.under_way.get() - 1);
    if cluster.under_way.get() == 0 {
        cluster.idle.notify_one();
    }
}

/// Range reads by shard and task.
type Scans = HashMap<(usize, u64), Slot>;

/// Where a range read is.
enum Slot {
    /// Its last turn has gone home.
    Idle(Box<ClusterScan>),
    /// With its task.
    Busy,
    /// With its task; its result is not wanted any more.
    Abandoned,
}

fn do_scan(cluster: &Rc<Cluster>, scans: &Rc<ScanQueue>, open: &Rc<RefCell<Scans>>, job: ScanJob) {
    let name = (job.shard_index, job.task);
    let mut slots = open.borrow_mut();
    let scan = match job.ask {
        Ask::Open { range, acks } => {
            let level = cluster.level(acks);
            Box::new(ClusterScan::new(level, cluster.buckets, &range))
        }
        Ask::Next => match slots.remove(&name) {
            Some(Slot::Idle(scan)) => scan,
            Some(_) | None => return,
        },
        Ask::Close => {
            if let Some(Slot::Busy) = slots.remove(&name) {
                slots.insert(name, Slot::Abandoned);
            }
            return;
        }
    };
    slots.insert(name, Slot::Busy);
    drop(slots);
    let (cluster, scans, open) = (Rc::clone(cluster), Rc::clone(scans), Rc::clone(open));
    spawn_local(async move {
        let mut scan = scan;
        let turn = scan.turn(&cluster).await;
        let goes_on = matches!(turn, Turn::Records { is_last: false, .. });
        let mut slots = open.borrow_mut();
        if let Some(Slot::Busy) = slots.remove(&name)
            && goes_on
        {
            slots.insert(name, Slot::Idle(scan));
        }
        drop(slots);
        scans.answer(name.0, name.1, job.request, turn);
    });
}

// The meaning of a failed statement, and its line in the log.

/// Why a statement failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum QueryFailure {
    /// Fewer copies than requested have responded in time, or no node was reachable.
    TooFew,
    /// The cluster does not do such things: they are wrong, or too large, or not allowed.
    Rejected,
}

impl QueryFailure {
    pub(super) fn of(error: &ExecutionError) -> Self {
        let ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) = error else {
            return match error {
                ExecutionError::BadQuery(_) => Self::Rejected,
                _ => Self::TooFew,
            };
        };
        match error {
            DbError::SyntaxError
            | DbError::Invalid
            | DbError::Unauthorized
            | DbError::ConfigError
            | DbError::AuthenticationError => Self::Rejected,
            _ => Self::TooFew,
        }
    }

    /// Of a write.
    pub(super) fn of_write(self) -> Outcome {
        match self {
            Self::TooFew => Outcome::Unknown,
            Self::Rejected => Outcome::Rejected,
        }
    }

    /// Of a read.
    pub(super) fn of_read(self) -> Outcome {
        match self {
            Self::TooFew => Outcome::TooFewReplicas,
            Self::Rejected => Outcome::ReadFailed,
        }
    }
}

/// The log's share of what fails: a line a second, however much does.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    last: Cell<Option<Instant>>,
    unsaid: Cell<u64>,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl Complaints {
    /// Logs it, or counts it.
    pub(super) fn add(&self, what: &str, cause: &dyn std::fmt::Display) {
        let now = Instant::now();
        if self.last.get().is_some_and(|last| now < last + INTERVAL) {
            self.unsaid.set(self.unsaid.get() + 1);
            return;
        }
        self.last.set(Some(now));
        let unsaid = self.unsaid.take();
        match unsaid {
            0 => log::write(
                LogLevel::Warn,
                format_args!("the cluster did not {what}: {cause}"),
            ),
            _ => log::write(
                LogLevel::Warn,
                format_args!("the cluster did not {what}: {cause}; and {unsaid} more failures"),
            ),
        }
    }
}

#[cfg(test)]
#[path = "tests/failure.rs"]
mod failure_tests;
