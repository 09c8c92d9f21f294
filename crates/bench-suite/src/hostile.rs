//! Hostile clients beside a well-behaved one: does the server refuse the former as it says, and does
//! the latter notice?
//!
//! Each attack gets a server of its own, with each driver: the well-behaved client runs alone and beside the attack,
//! alternately (A B A B), then everything has to be as it was before. The criteria are exact: no error of the
//! well-behaved client, the expected responses and counters for the attack, memory and descriptors back. The ratio of
//! latencies is printed and recorded, never judged here.
//!
//! Server and generator have a CPU each; the attack shares the generator's, behind it. Where the
//! system permits it, server and generator run at a real-time priority, to keep other programs out
//! of the measurement, and idle CPUs stay awake, to keep the host out: see `bench::Awake`. The
//! hostile side is plain sockets, nothing of ours: see `crowd`.
//!
//! A second table is of attacks on descriptors, memory and upstreams, which judges peaks: see `resources`.
//!
//! A host that takes a CPU away for milliseconds decides a p99 by chance: requests under way meanwhile
//! are left out of what is compared, and counted, see `stalls`; where they are many another pair of
//! turns is taken, and nothing is judged where there are not enough; see `pair`.
//!
//! The verdict is on the time from a request's real departure to the response's arrival by the kernel's stamp:
//! the attack shares the generator's CPU, and how late that one leaves or wakes is not the server's
//! doing. Nothing is omitted by it, since the well-behaved client has more connections than requests
//! under way; the response clock, from when a request was meant to leave until its response was seen,
//! is recorded beside it.

mod crowd;
pub(crate) mod exchanges;
pub(crate) mod stalls;
mod attack;
pub(crate) mod resources;
pub(crate) mod subject;

use crate::bench::candidates::Record;
use crate::bench::real_time;
use crate::bench::{self, Bench};
use crate::bench::{Figure, table};
use attack::{ATTACKS, Attack, Kind, LARGE_FILE};
use crowd::CrowdProcess;
use exchanges::Turn;
use exchanges::{Amount, CONNECTIONS, Experience, GoodClient};
use exchanges::{Pair, Pairs};
use resources::ResourceAttack;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use stalls::{CpuTicks, Stood, Watchers};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use subject::{Holdings, Metrics, PATIENCE, Subject, broken_identity, sum};

/// How the well-behaved client asks, and how often the turns change.
struct HostilePlan {
    /// To compare.
    pairs: usize,
    /// The tolerance for a noisy machine; see `exchanges`.
    pairs_max: usize,
    amount: Amount,
    rate_per_s: u64,
    /// Of measuring, for each attack and driver.
    seconds: u64,
    /// Before its responses count, all its connections have had one: the client is an established
    /// one.
    warm_up: Duration,
    /// How long newcomers come.
    newcomers: Duration,
    /// Pause between two turns, for what the last one left to close.
    between: Duration,
    smoke: bool,
}

impl HostilePlan {
    /// Short runs: at a real-time priority a longer one would meet the kernel's guard against them.
    fn full(seconds: u64) -> Self {
        let run = Duration::from_millis(800);
        let pairs = Duration::from_secs(seconds).as_millis() / (2 * run).as_millis();
        let pairs = (pairs as usize).max(1);
        Self {
            pairs,
            pairs_max: 4 * pairs,
            amount: Amount::Time(run),
            rate_per_s: 2000,
            seconds,
            warm_up: Duration::from_millis(100),
            newcomers: Duration::from_millis(400),
            between: Duration::from_millis(300),
            smoke: false,
        }
    }

    /// Long enough for several responses on each connection, and no longer: how long a response takes is not judged.
    /// What an attack has to meet is waited for, however long that takes.
    fn smoke() -> Self {
        Self {
            pairs: 1,
            pairs_max: 1,
            seconds: 0,
            amount: Amount::Requests(200),
            rate_per_s: 2000,
            warm_up: Duration::from_millis(50),
            newcomers: Duration::from_millis(100),
            between: Duration::ZERO,
            smoke: true,
        }
    }
}

/// Seconds of measurement for each attack and driver by default.
pub(crate) const SECONDS_DEFAULT: u64 = 8;
/// The memory of an attack that may stay resident for a while: free memory of pools and of malloc.
const RESIDENT_LEFT_BYTES_MAX: u64 = 8 << 20;
/// Short deadlines, so that an attack that meets one does within a moment.
const DEADLINES: [&str; 8] = [
    "--head-timeout",
    "400ms",
    "--body-grace",
    "400ms",
    "--write-stall",
    "400ms",
    "--min-write-rate",
    "1GiB",
];

/// Measures all attacks, or the one named, and records.
pub(crate) fn run(name: Option<&str>, seconds: u64) -> Result<(), String> {
    let (chosen, resources) = chosen(name)?;
    let plan = HostilePlan::full(seconds);
    let mut bench = bench::prepare(bench::Plan::full(), true)?;
    bench.machine.keep_awake(true);
    let turns = match chosen.is_empty() {
        true => Ok((Vec::new(), Vec::new())),
        false => turns_of_all(&bench, &plan, &chosen),
    };
    let resources = resources::run_all(&bench, false, most_descriptors()? as u64, &resources);
    let (figures, details) = turns?;
    print!("\n{}", table(&figures));
    let resources = resources?;
    if name.is_none() {
        record(&bench, &plan, &figures, &details, &resources)?;
    }
    Ok(())
}

/// The attacks of both tables, or the one named.
fn chosen(
    name: Option<&str>,
) -> Result<(Vec<&'static Attack>, Vec<&'static ResourceAttack>), String> {
    let Some(name) = name else {
        return Ok((
            ATTACKS.iter().collect(),
            resources::ATTACKS.iter().collect(),
        ));
    };
    let found = (attack::named(name), resources::named(name));
    if let (None, None) = found {
        let names = ATTACKS.iter().map(|attack| attack.name);
        let names = names.chain(resources::ATTACKS.iter().map(|attack| attack.name));
        let names: Vec<&str> = names.collect();
        return Err(format!(
            "no attack is called {name}: use one of {}",
            names.join(", ")
        ));
    }
    Ok((found.0.into_iter().collect(), found.1.into_iter().collect()))
}

/// One attack on resources in this process; see [`resources`].
pub(crate) fn run_resource(words: &[&str]) -> Result<(), String> {
    most_descriptors()?;
    resources::run_one(words)
}

/// A moment of each attack: only whether the server does what it says.
pub(crate) fn smoke() -> Result<(), String> {
    let bench = bench::prepare(bench::Plan::smoke(), true)?;
    let (chosen, resources) = chosen(None)?;
    let turns = turns_of_all(&bench, &HostilePlan::smoke(), &chosen).map(|_| ());
    resources::run_all(&bench, true, most_descriptors()? as u64, &resources)?;
    turns
}

/// All turns of one attack with one driver, in this process; see `exchanges`.
pub(crate) fn run_apart(name: &str, driver: &str, seconds: &str, file: &str) -> Result<(), String> {
    let attack = attack::named(name).ok_or("no such attack")?;
    let seconds = seconds.parse();
    let plan = HostilePlan::full(seconds.map_err(|error| format!("that is no number: {error}"))?);
    let mut bench = bench::prepare(bench::Plan::full(), true)?;
    bench.machine.keep_awake(true);
    let site = Site::make(&bench)?;
    let turns = Turns::new(&bench, &plan, &site, driver)?;
    let (figures, detail) = turns.take(attack)?;
    exchanges::write(Path::new(file), &figures, &detail)
}

/// The process of a crowd; see [`crowd`].
pub(crate) fn run_crowd(name: &str, address: &str, count: &str) -> Result<(), String> {
    let attack = attack::named(name).ok_or("no such attack")?;
    let address: SocketAddr = address
        .parse()
        .map_err(|error| format!("{address}: {error}"))?;
    let count: usize = count.parse().map_err(|error| format!("{count}: {error}"))?;
    crowd::run(&(attack.behaviour)(), address, count)
}

fn turns_of_all(
    bench: &Bench,
    plan: &HostilePlan,
    chosen: &[&Attack],
) -> Result<(Vec<Figure>, Vec<Value>), String> {
    let site = Site::make(bench)?;
    let (mut figures, mut details, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let network = match plan.smoke {
        true => &[],
        false => exchanges::own_network(),
    };
    if !plan.smoke && network.is_empty() {
        println!(
            "no network of its own for each attack: unshare(1) and ip(8) need root; what one leaves \
             in the kernel may show in the next"
        );
    }
    for driver in ["uring", "epoll"] {
        let turns = Turns::new(bench, plan, &site, driver)?;
        if let Err(sentence) = turns.serve(chosen[0]) {
            if driver == "epoll" {
                return Err(sentence);
            }
            println!("not run with {driver}: {sentence}");
            continue;
        }
        // Every attack has its turn even when an earlier one failed: one run names all that is wrong.
        for attack in chosen {
            let taken = match plan.smoke {
                true => turns.take(attack),
                false => {
                    let file = turns.record.with_extension("turns.json");
                    exchanges::take(network, attack, driver, plan.seconds, &file)
                }
            };
            match taken {
                Ok((found, detail)) => {
                    figures.extend(found);
                    details.push(detail);
                }
                Err(sentence) => {
                    println!("{:<34} {driver:<6} FAILED: {sentence}", attack.name);
                    failures.push(format!("{} with {driver}", attack.name));
                }
            }
        }
    }
    match failures.is_empty() {
        true => Ok((figures, details)),
        false => Err(format!(
            "failed: {}; why is printed above",
            failures.join(", ")
        )),
    }
}

/// A directory with a small and a large file.
struct Site {
    directory: String,
}

impl Site {
    fn make(bench: &Bench) -> Result<Self, String> {
        let directory = bench.scratch.join("hostile-site");
        let write = || {
            std::fs::create_dir_all(&directory)?;
            std::fs::write(directory.join("index.html"), "well-behaved")?;
            std::fs::write(directory.join("small"), vec![b's'; 2000])?;
            std::fs::write(directory.join(&LARGE_FILE[1..]), vec![b'l'; 32 << 20])
        };
        let shown = directory.display().to_string();
        write().map_err(|error| format!("{shown} cannot be filled: {error}"))?;
        Ok(Self { directory: shown })
    }
}

/// The common parts of every turn.
struct Turns<'a> {
    bench: &'a Bench,
    plan: &'a HostilePlan,
    site: &'a Site,
    driver: &'a str,
    before: Vec<&'static str>,
    /// Where the well-behaved client writes; another run of this may be under way.
    record: PathBuf,
    /// How many this process, and each of its children, may have open.
    descriptors: usize,
}

impl<'a> Turns<'a> {
    fn new(
        bench: &'a Bench,
        plan: &'a HostilePlan,
        site: &'a Site,
        driver: &'a str,
    ) -> Result<Self, String> {
        let before = match plan.smoke {
            true => Vec::new(),
            false => real_time(),
        };
        let record = format!("hostile-good-{}.json", std::process::id());
        Ok(Self {
            bench,
            plan,
            site,
            driver,
            before,
            record: bench.scratch.join(record),
            descriptors: most_descriptors()?,
        })
    }

    fn serve(&self, attack: &Attack) -> Result<Subject, String> {
        let mut words = match attack.kind {
            Kind::Plaintext => vec!["plaintext"],
            Kind::Files => vec!["files", &self.site.directory],
        };
        words.extend(["--driver", self.driver]);
        if attack.meets_deadline() {
            words.extend(DEADLINES);
        }
        words.extend(attack.flags);
        let cpu = self.bench.machine.server_cpu;
        Subject::start(&self.bench.millpond, cpu, &self.before, &words)
    }

    fn good(&self, attack: &Attack) -> GoodClient<'_> {
        GoodClient {
            millpond: &self.bench.millpond,
            cpu: self.bench.machine.generator_cpu,
            before: &self.before,
            path: match attack.kind {
                Kind::Plaintext => "/plaintext",
                Kind::Files => "/",
            },
            rate_per_s: self.plan.rate_per_s,
            amount: self.plan.amount,
            warm_up: self.plan.warm_up,
            newcomers: self.plan.newcomers,
            record: self.record.clone(),
        }
    }

    /// All turns of one attack, and what is left after them.
    fn take(&self, attack: &Attack) -> Result<(Vec<Figure>, Value), String> {
        let subject = self.serve(attack)?;
        let good = self.good(attack);
        // Memory that the first requests take permanently is not counted to an attack.
        check_good(&good.run(&subject)?)?;
        let normal = self.settled(&subject, None)?;
        let mut pairs = Pairs::new(self.plan.pairs, self.plan.pairs_max);
        while pairs.wants_more() {
            pairs.push(self.pair(attack, &subject, &good)?);
            std::thread::sleep(self.plan.between);
        }
        let after = self.settled(&subject, Some(normal))?;
        let stopped = subject.stop()?;
        if stopped != 0 {
            return Err(format!("the server ended with status {stopped}"));
        }
        Ok(pairs.summary([attack.name, self.driver], [normal, after]))
    }

    /// The well-behaved client alone, then beside the attack.
    fn pair(
        &self,
        attack: &Attack,
        subject: &Subject,
        good: &GoodClient<'_>,
    ) -> Result<Pair, String> {
        let watchers = self.watchers()?;
        let alone = Turn {
            standing: good.run(subject)?,
            newcomers: good.run_newcomers(subject)?.into(),
            crowd: None,
        };
        let cpus = [
            self.bench.machine.server_cpu,
            self.bench.machine.generator_cpu,
        ];
        let (begun_unix_ns, before) = (stalls::unix_ns(), cpus.map(CpuTicks::read));
        let beside = self.attacked(attack, subject, good)?;
        let after = cpus.map(CpuTicks::read);
        check_good(&alone.standing)?;
        check_good(&beside.standing)?;
        let stalls = watchers.finish()?;
        let steal = [0, 1].map(|place| before[place].zip(after[place]));
        let share = |(before, after): (CpuTicks, CpuTicks)| after.steal_share_since(before);
        let stolen_ns = steal[0].map(|(before, after)| after.steal_ns_since(before));
        Ok(Pair {
            alone,
            beside,
            steal_share_beside: steal.iter().flatten().copied().map(share).sum::<f64>() / 2.0,
            stood_beside: Stood {
                seen_ns: stalls.of_server_since(begun_unix_ns),
                stolen_ns: stolen_ns.unwrap_or(0),
            },
            stalls,
        })
    }

    /// Of the machine's stalls; none where how long a response takes is not judged.
    fn watchers(&self) -> Result<Watchers, String> {
        let machine = &self.bench.machine;
        match self.plan.smoke {
            true => Ok(Watchers::default()),
            false => Watchers::start([machine.server_cpu, machine.generator_cpu]),
        }
    }

    /// The well-behaved client beside the attack; then the attack continues until its conditions
    /// are met.
    fn attacked(
        &self,
        attack: &Attack,
        subject: &Subject,
        good: &GoodClient<'_>,
    ) -> Result<Turn, String> {
        let before = subject.metrics()?;
        let running = match attack.is_good_first {
            true => Some(self.good_is_in(subject, good)?),
            false => None,
        };
        let count = match self.plan.smoke {
            true => attack.smoke_count,
            false => attack.count.min(self.descriptors.saturating_sub(1000)),
        };
        let mut crowd =
            CrowdProcess::start(attack, subject, self.bench.machine.generator_cpu, count)?;
        crowd.wait_ready()?;
        let (standing, newcomers) = match running {
            Some(running) => (running.finish()?, None),
            None => (good.run(subject)?, Some(good.run_newcomers(subject)?)),
        };
        let held = subject.holdings()?;
        let grown = |metrics: &Metrics, sample: &str| {
            let value = |metrics: &Metrics| metrics.get(sample).copied().unwrap_or_default();
            value(metrics) > value(&before)
        };
        let what = format!("{:?} have not all grown", attack.counted);
        subject.wait_until(&what, |metrics| {
            attack.counted.iter().all(|sample| grown(metrics, sample))
        })?;
        let tally = crowd.finish()?;
        check_tally(attack, &tally)?;
        let crowd = json!({ "count": count, "resident_bytes": held.resident_bytes,
            "descriptors": held.descriptors, "tally": tally });
        Ok(Turn {
            standing,
            newcomers,
            crowd: Some(crowd),
        })
    }

    /// Starts the well-behaved client, and waits until all its connections stand.
    fn good_is_in(
        &self,
        subject: &Subject,
        good: &GoodClient<'_>,
    ) -> Result<exchanges::Running, String> {
        let running = good.start(subject)?;
        subject.wait_until("the well-behaved client connects", |metrics| {
            sum(metrics, "millpond_http_connections") > CONNECTIONS as f64
        })?;
        Ok(running)
    }

    /// Waits until only we are connected and, after an attack, its resources are given back.
    fn settled(&self, subject: &Subject, normal: Option<Holdings>) -> Result<Holdings, String> {
        let metrics = subject.wait_until("all connections close", |metrics| {
            sum(metrics, "millpond_http_connections") == 1.0
        })?;
        if let Some(sentence) = broken_identity(&metrics) {
            return Err(sentence);
        }
        let begun = Instant::now();
        loop {
            let now = subject.holdings()?;
            let Some(normal) = normal else {
                return Ok(now);
            };
            let most = normal.resident_bytes + RESIDENT_LEFT_BYTES_MAX;
            if now.descriptors <= normal.descriptors && now.resident_bytes <= most {
                return Ok(now);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "the attack is over, and not all is back: {normal:?}, now {now:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn check_good(experience: &Experience) -> Result<(), String> {
    match (experience.errors, experience.requests) {
        (0, 1..) => Ok(()),
        (errors, requests) => Err(format!(
            "the well-behaved client had {errors} errors and {requests} responses"
        )),
    }
}

/// The crowd got the expected responses, and no others.
fn check_tally(attack: &Attack, tally: &Value) -> Result<(), String> {
    let found = tally["statuses"].as_object().map(|statuses| {
        statuses
            .keys()
            .filter_map(|status| status.parse::<u16>().ok())
            .collect::<Vec<_>>()
    });
    let mut found = found.unwrap_or_default();
    found.sort_unstable();
    if found != attack.answers || tally["cut"] != 0 {
        return Err(format!(
            "the responses were to be {:?}, whole: {tally}",
            attack.answers
        ));
    }
    Ok(())
}

/// Raises the limit as far as it goes, for this process and its children.
fn most_descriptors() -> Result<usize, String> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("ulimit -n: {error}"))?;
    Ok(limit.maximum.map_or(usize::MAX, |count| count as usize))
}

fn record(
    bench: &Bench,
    plan: &HostilePlan,
    figures: &[Figure],
    details: &[Value],
    resources: &[Value],
) -> Result<(), String> {
    let figures: Vec<Value> = figures.iter().map(Figure::to_json).collect();
    let command = match plan.seconds {
        SECONDS_DEFAULT => "cargo bench-suite hostile".to_owned(),
        seconds => format!("cargo bench-suite hostile {seconds}"),
    };
    Record::new("hostile", command, &bench.machine)?
        .with("pairs", plan.pairs)
        .with("connections", CONNECTIONS)
        .with("rate_per_s", plan.rate_per_s)
        .with("is_real_time", !real_time().is_empty())
        .with("figures", figures)
        .with("attacks", details)
        .with("resources", resources)
        .write()
}
