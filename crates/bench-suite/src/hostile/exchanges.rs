//! Every request of the well-behaved client with its two clocks, and their results without those that a stall of the
//! machine disturbed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::candidates::Spread;
use crate::bench::{Figure, bounded};

use super::attack::Attack;
use super::stalls::{Stall, Stalls, Stood};
use super::subject::{Holdings, Subject};

/// One request, in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Exchange {
    written_unix_ns: u64,
    slip_ns: u64,
    service_ns: u64,
    /// Of a sample.
    kernel_service_ns: Option<u64>,
}

/// The rest of them, and its 99th percentiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undisturbed {
    /// Of all requests, those that are not in it.
    pub(super) disturbed_share: f64,
    /// From when a request left to when the kernel had the response.
    pub(super) kernel_p99_ns: f64,
    /// From its intended start to its response.
    pub(super) response_p99_ns: f64,
}

/// Reads what `millpond load --print requests=FILE` wrote.
pub(super) fn read(file: &Path) -> Result<Vec<Exchange>, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let lines = text.lines().skip(1);
    lines
        .map(|line| parse(line).ok_or_else(|| format!("{shown} has a line {line}")))
        .collect()
}

fn parse(line: &str) -> Option<Exchange> {
    let mut fields = line.split(',');
    let mut next = || fields.next();
    let written_unix_ns = next()?.parse().ok()?;
    let slip_ns = next()?.parse().ok()?;
    let (_connect, _waiting) = (next()?, next()?);
    let service_ns = next()?.parse().ok()?;
    let kernel_service_ns = match next()? {
        "" => None,
        field => Some(field.parse().ok()?),
    };
    Some(Exchange {
        written_unix_ns,
        slip_ns,
        service_ns,
        kernel_service_ns,
    })
}

/// Leaves out what `stalls` disturbed; `None` if nothing is left.
pub(super) fn undisturbed(exchanges: &[Exchange], stalls: &[Stall]) -> Option<Undisturbed> {
    let is_quiet = |exchange: &&Exchange| {
        let due_ns = exchange.written_unix_ns.saturating_sub(exchange.slip_ns);
        let end_ns = exchange.written_unix_ns + exchange.service_ns;
        !stalls.iter().any(|stall| stall.disturbs(due_ns, end_ns))
    };
    let quiet: Vec<&Exchange> = exchanges.iter().filter(is_quiet).collect();
    let left = quiet.len() as f64 / exchanges.len() as f64;
    let kernel = quiet.iter().filter_map(|one| one.kernel_service_ns);
    let response = quiet.iter().map(|one| one.slip_ns + one.service_ns);
    Some(Undisturbed {
        disturbed_share: 1.0 - left,
        kernel_p99_ns: p99(kernel.collect())?,
        response_p99_ns: p99(response.collect())?,
    })
}

/// The nearest rank.
fn p99(mut spans_ns: Vec<u64>) -> Option<f64> {
    spans_ns.sort_unstable();
    let rank = (spans_ns.len() * 99).div_ceil(100);
    Some(*spans_ns.get(rank.checked_sub(1)?)? as f64)
}

// Responses in a stream of bytes, counted by status.
//
// As little HTTP as a count needs, and none of our own parser's: a server that framed its responses
// wrongly would agree with itself.

/// A response head of ours is a few hundred bytes; a longer one is not a response head.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// How much of the current response was read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum ResponsePosition {
    /// Between responses, or inside a head.
    #[default]
    Head,
    /// So much of a body is to come.
    Body(u64),
    /// The received bytes are no response; nothing behind them can be counted.
    Lost,
}

/// The responses of one connection so far.
#[derive(Debug, Default)]
pub(super) struct Answers {
    place: ResponsePosition,
    head: Vec<u8>,
}

impl Answers {
    /// Counts the responses that end in `bytes` into `statuses`, as 0 what is none.
    pub(super) fn take(&mut self, mut bytes: &[u8], statuses: &mut BTreeMap<u16, u64>) {
        while !bytes.is_empty() && self.place != ResponsePosition::Lost {
            if let ResponsePosition::Body(left) = self.place {
                let here = left.min(bytes.len() as u64);
                bytes = &bytes[here as usize..];
                self.place = match left - here {
                    0 => ResponsePosition::Head,
                    left => ResponsePosition::Body(left),
                };
                continue;
            }
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            // The empty line may have begun in what came before.
            let from = before.saturating_sub(3);
            let end = self.head[from..].windows(4).position(|w| w == b"\r\n\r\n");
            let Some(end) = end.map(|at| from + at + 4) else {
                if self.head.len() > HEAD_BYTES_MAX {
                    self.lose(statuses);
                }
                return;
            };
            bytes = &bytes[end - before..];
            match answers_parse(&self.head[..end]) {
                Some((status, length)) => {
                    *statuses.entry(status).or_default() += 1;
                    self.place = if length == 0 {
                        ResponsePosition::Head
                    } else {
                        ResponsePosition::Body(length)
                    };
                }
                None => self.lose(statuses),
            }
            self.head.clear();
        }
    }

    fn lose(&mut self, statuses: &mut BTreeMap<u16, u64>) {
        *statuses.entry(0).or_default() += 1;
        self.place = ResponsePosition::Lost;
    }

    /// In the middle of a response.
    pub(super) fn is_inside(&self) -> bool {
        !self.head.is_empty() || matches!(self.place, ResponsePosition::Body(_))
    }
}

/// Status and length of the body.
fn answers_parse(head: &[u8]) -> Option<(u16, u64)> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let status: u16 = lines
        .next()?
        .strip_prefix("HTTP/1.1 ")?
        .get(..3)?
        .parse()
        .ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<u64>())
    });
    match length {
        None if status < 200 || matches!(status, 204 | 304) => Some((status, 0)),
        // The length in a 304 is that of what is not sent.
        Some(Ok(_)) if status == 304 => Some((status, 0)),
        Some(Ok(length)) => Some((status, length)),
        _ => None,
    }
}

// The results of the well-behaved clients in each turn, and the ratio of the turns beside an attack to the turns alone.

/// The results of one turn, alone or beside a crowd.
pub(super) struct Turn {
    /// By the clients that have been there for a while.
    pub(super) standing: Experience,
    pub(super) newcomers: Option<Experience>,
    /// The connections of the crowd, and their outcome.
    pub(super) crowd: Option<Value>,
}

impl Turn {
    fn kernel_p99_ns(&self, left_out: &[Stall]) -> Option<f64> {
        Some(undisturbed(&self.standing.exchanges, left_out)?.kernel_p99_ns)
    }

    /// The share of requests that these disturbed.
    pub(super) fn disturbed_share(&self, stalls: &[Stall]) -> Option<f64> {
        Some(undisturbed(&self.standing.exchanges, stalls)?.disturbed_share)
    }
}

/// The same of some turns: the median.
fn disturbed_share(turns: &[Turn], stalls: &[Stall]) -> f64 {
    let shares = turns.iter().filter_map(|turn| turn.disturbed_share(stalls));
    Spread::of(shares).median
}

/// The most that the server held beside a crowd.
fn most_held(beside: &[Turn], what: &str) -> u64 {
    let crowds = beside.iter().filter_map(|turn| turn.crowd.as_ref());
    let held = crowds.filter_map(|crowd| crowd[what].as_u64());
    held.max().unwrap_or_default()
}

/// How often the crowds of all turns got each status.
fn statuses(beside: &[Turn]) -> BTreeMap<&str, u64> {
    let mut all = BTreeMap::new();
    for crowd in beside.iter().filter_map(|turn| turn.crowd.as_ref()) {
        let statuses = crowd["tally"]["statuses"].as_object();
        for (status, count) in statuses.into_iter().flatten() {
            *all.entry(status.as_str()).or_default() += count.as_u64().unwrap_or_default();
        }
    }
    all
}

/// The ratio of turns beside an attack to turns alone: medians of pairs.
struct Ratios {
    /// By the kernel's stamp, what stalls disturbed left out; with its target if it can be judged.
    p99: Figure,
    response: Figure,
    /// By the kernel's stamp, with everything.
    whole: Figure,
    p50: Figure,
    newcomers: Figure,
}

impl Ratios {
    fn of(label: &str, [alone, beside]: [&[Turn]; 2], left_out: &[Stall], is_judged: bool) -> Self {
        let figure = |what: &str, clock: &dyn Fn(&Turn) -> Option<f64>| {
            let pairs = alone.iter().zip(beside);
            let ratios = pairs.filter_map(|(alone, beside)| Some(clock(beside)? / clock(alone)?));
            Figure::median(format!("{label}_{what}"), ratios.collect())
        };
        let kernel = |turn: &Turn| turn.kernel_p99_ns(left_out);
        Self {
            p99: match is_judged {
                true => figure("p99_ratio", &kernel).at_most(2.0),
                false => figure("p99_ratio_not_judged", &kernel),
            },
            response: figure("response_p99_ratio", &|turn| {
                Some(undisturbed(&turn.standing.exchanges, left_out)?.response_p99_ns)
            }),
            whole: figure("p99_ratio_with_stalls", &|turn| {
                Some(turn.standing.kernel_p99_ns)
            }),
            p50: figure("p50_ratio", &|turn| Some(turn.standing.kernel_p50_ns)),
            newcomers: figure("newcomers_p50_ratio", &|turn| {
                Some(turn.newcomers.as_ref()?.kernel_p50_ns)
            }),
        }
    }

    fn into_figures(self) -> Vec<Figure> {
        let mut figures = vec![self.p99, self.response];
        // There is no room for newcomers beside an attack that takes it all.
        figures.extend((!self.newcomers.runs.is_empty()).then_some(self.newcomers));
        figures
    }
}

/// The results of one attack's turns: figures, the p99 with its target, and a line for the record.
pub(super) fn summary(
    [attack, driver]: [&str; 2],
    turns: [&[Turn]; 2],
    (stalls, stood): (&Stalls, Stood),
    [normal, after]: [Holdings; 2],
    is_judged: bool,
) -> (Vec<Figure>, Value) {
    let [alone, beside] = turns;
    let shares = turns.map(|turns| disturbed_share(turns, &stalls.of_server));
    let left_out = stalls.to_leave_out(shares, stood);
    let ratios = Ratios::of(&format!("{attack}_{driver}"), turns, &left_out, is_judged);
    let p99_ns = |turns: &[Turn]| {
        let all = turns
            .iter()
            .filter_map(|turn| turn.kernel_p99_ns(&left_out));
        Spread::of(all).median
    };
    let requests_beside: u64 = beside.iter().map(|turn| turn.standing.requests).sum();
    let resident_bytes_max = most_held(beside, "resident_bytes");
    let percent = |turns: &[Turn], stalls: &[Stall]| disturbed_share(turns, stalls) * 100.0;
    println!(
        "{attack:<34} {driver:<6} {} pairs, p99 {:>6.0} us alone, ratio {:>5.2}{}, response {:>5.2}; disturbed by \
         stalls of the server's CPU {:.1} % alone, {:.1} % beside, of the generator's {:.1} %, {:.1} %, \
         ratio with all {:>5.2}; p50 {:>5.2}; newcomers {:>5.2}; {} responses beside it, 0 errors; {:.1} MiB",
        alone.len(),
        p99_ns(alone) / 1000.0,
        ratios.p99.value,
        match is_judged {
            true => "",
            false => " (not judged: the machine is noisy)",
        },
        ratios.response.value,
        percent(alone, &stalls.of_server),
        percent(beside, &stalls.of_server),
        percent(alone, &stalls.of_generator),
        percent(beside, &stalls.of_generator),
        ratios.whole.value,
        ratios.p50.value,
        ratios.newcomers.value,
        requests_beside,
        resident_bytes_max as f64 / f64::from(1 << 20),
    );
    let detail = json!({
        "attack": attack,
        "driver": driver,
        "is_judged": is_judged,
        "pairs": alone.len(),
        "requests_beside": requests_beside,
        "p99_ns": { "alone": p99_ns(alone), "beside": p99_ns(beside) },
        "p99_ratio_with_stalls": ratios.whole.value,
        "p50_ratio": ratios.p50.value,
        "disturbed_share_of_server_cpu": { "alone": shares[0], "beside": shares[1] },
        "server_cpu_stood_beside_ns": { "seen": stood.seen_ns, "stolen": stood.stolen_ns },
        "statuses_of_the_crowd": statuses(beside),
        "resident_bytes": { "before": normal.resident_bytes, "beside_max": resident_bytes_max,
            "after": after.resident_bytes },
        "descriptors": { "before": normal.descriptors,
            "beside_max": most_held(beside, "descriptors"), "after": after.descriptors },
    });
    (ratios.into_figures(), detail)
}

// A turn alone and one beside an attack, and which of them a noisy machine leaves to compare.
//
// A host that is noisy for minutes is quiet for seconds in between. So pairs are taken until as
// many as were planned met a quiet machine, up to so many in all. Whether a pair did is asked of what
// no server has a hand in: of its turn alone, how many requests stalls disturbed; of that beside the
// attack, what the hypervisor says it took. A pair is never chosen by how long responses took.
//
// Where there are too few of them all pairs are printed and recorded, and nothing is judged.

/// Of the requests of a turn alone, disturbed by stalls: with more of them the machine itself decides
/// what a p99 is.
const DISTURBED_SHARE_MAX: f64 = 0.015;
/// Of the time of both CPUs, taken by the hypervisor beside an attack.
const STEAL_SHARE_MAX: f64 = 0.01;

pub(super) struct Pair {
    pub(super) alone: Turn,
    pub(super) beside: Turn,
    pub(super) stalls: Stalls,
    /// Of the server's CPU and the generator's; 0 where the system does not report it.
    pub(super) steal_share_beside: f64,
    pub(super) stood_beside: Stood,
}

impl Pair {
    /// Whether the machine was there for it.
    fn is_quiet(&self) -> bool {
        let disturbed = self.alone.disturbed_share(&self.stalls.of_both());
        disturbed.is_none_or(|share| share <= DISTURBED_SHARE_MAX)
            && self.steal_share_beside <= STEAL_SHARE_MAX
    }
}

/// Of one attack with one driver.
pub(super) struct Pairs {
    planned: usize,
    most: usize,
    quiet: Vec<Pair>,
    noisy: Vec<Pair>,
}

impl Pairs {
    /// `planned` on a quiet machine, or no more than `most` in all.
    pub(super) fn new(planned: usize, most: usize) -> Self {
        Self {
            planned,
            most,
            quiet: Vec::new(),
            noisy: Vec::new(),
        }
    }

    pub(super) fn wants_more(&self) -> bool {
        let taken = self.quiet.len() + self.noisy.len();
        self.quiet.len() < self.planned && taken < self.most
    }

    pub(super) fn push(&mut self, pair: Pair) {
        match pair.is_quiet() {
            true => self.quiet.push(pair),
            false => self.noisy.push(pair),
        }
    }

    pub(super) fn summary(
        self,
        [attack, driver]: [&str; 2],
        holdings: [Holdings; 2],
    ) -> (Vec<Figure>, Value) {
        let is_judged = self.quiet.len() >= self.planned;
        let noisy = self.noisy.len();
        let compared = match is_judged {
            true => self.quiet,
            false => self.quiet.into_iter().chain(self.noisy).collect(),
        };
        let (mut stalls, mut stood) = (Stalls::default(), Stood::default());
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for pair in compared {
            stalls.extend(pair.stalls);
            stood += pair.stood_beside;
            alone.push(pair.alone);
            beside.push(pair.beside);
        }
        let (figures, mut detail) = summary(
            [attack, driver],
            [&alone, &beside],
            (&stalls, stood),
            holdings,
            is_judged,
        );
        detail["pairs_on_a_restless_machine"] = noisy.into();
        (figures, detail)
    }
}

// A network of its own for each attack.
//
// Kernel state outlives an attack: for a minute the connections that the server closed first stand
// in TIME_WAIT, and their timers end by the thousand in one interrupt, 150 us with another 300 us
// of packets behind it. In one network for all, that minute later was the next attacks' time, and
// that of their runs alone. A network goes with all its connections.
//
// In this network no peer delays an acknowledgement. A hostile client that is slow to close leaves the acknowledgement
// of the server's last packet to a timer of 40 ms, which runs on the CPU that received for it. On one machine that is
// the server's: a hundred of them in one interrupt, 300 us. Remote clients have their timers on their own machine.

/// A shell that is the first in a new network brings its loopback interface up, has it acknowledge at
/// once, and becomes the program behind it.
const OWN_NETWORK: [&str; 6] = [
    "unshare",
    "--net",
    "sh",
    "-c",
    "ip link set lo up && for to in 127.0.0.0/8 127.0.0.1; do \
     ip route change table local local $to dev lo scope host src 127.0.0.1 quickack 1; done && exec \"$@\"",
    "sh",
];

/// The words that give a program a network of its own; none where that cannot be.
pub(super) fn own_network() -> &'static [&'static str] {
    let tried = Command::new(OWN_NETWORK[0])
        .args(&OWN_NETWORK[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    match tried.is_ok_and(|status| status.success()) {
        true => &OWN_NETWORK,
        false => &[],
    }
}

/// Has another process, behind `before`, take all turns of an attack; it prints them on our stdout,
/// and leaves them in `file`.
pub(super) fn take(
    before: &[&str],
    attack: &Attack,
    driver: &str,
    seconds: u64,
    file: &Path,
) -> Result<(Vec<Figure>, Value), String> {
    let myself = std::env::current_exe().map_err(|error| format!("who am I: {error}"))?;
    let mut words = before.iter();
    let mut command = match words.next() {
        Some(first) => Command::new(first),
        None => Command::new(&myself),
    };
    command.args(words);
    if !before.is_empty() {
        command.arg(&myself);
    }
    command.args(["hostile-apart", attack.name, driver, &seconds.to_string()]);
    let status = command.arg(file).status();
    let status = status.map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    apart_read(file).ok_or_else(|| format!("{} is no record of turns", file.display()))
}

/// Leaves them for the waiting thread.
pub(super) fn write(file: &Path, figures: &[Figure], detail: &Value) -> Result<(), String> {
    let figures: Vec<Value> = figures
        .iter()
        .map(|figure| {
            let limit = figure.target.map(|(_, limit)| limit);
            json!({ "name": figure.name, "runs": figure.runs, "at_most": limit })
        })
        .collect();
    let record = json!({ "figures": figures, "detail": detail });
    std::fs::write(file, record.to_string())
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

fn apart_read(file: &Path) -> Option<(Vec<Figure>, Value)> {
    let record: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let figures = record["figures"].as_array()?.iter().map(|figure| {
        let runs = figure["runs"].as_array()?.iter().map(Value::as_f64);
        let median = Figure::median(
            figure["name"].as_str()?.to_owned(),
            runs.collect::<Option<_>>()?,
        );
        Some(match figure["at_most"].as_f64() {
            Some(limit) => median.at_most(limit),
            None => median,
        })
    });
    Some((figures.collect::<Option<_>>()?, record["detail"].clone()))
}

// The payloads of hostile clients.

/// A request that is in order.
pub(super) const GET: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: hostile\r\n\r\n";

/// Room for the head of a request in the servers' default limit.
const PAYLOAD_HEAD_BYTES_MAX: usize = 16 * 1024;
const FIELDS_MAX: usize = 100;

/// `GET`, as many times.
pub(super) fn pipeline(depth: usize) -> Vec<u8> {
    GET.repeat(depth)
}

/// A head with as many fields and bytes as the limits allow, and not one more.
pub(super) fn widest_head() -> Vec<u8> {
    head_of(PAYLOAD_HEAD_BYTES_MAX, FIELDS_MAX)
}

/// A head of exactly so many bytes and fields.
pub(super) fn head_of(bytes: usize, fields: usize) -> Vec<u8> {
    let mut head = GET[..GET.len() - 2].to_vec();
    for number in 1..fields - 1 {
        head.extend_from_slice(format!("X-{number:03}: {number}\r\n").as_bytes());
    }
    let name = b"X-Filler: ";
    head.extend_from_slice(name);
    let filler_bytes = bytes - head.len() - b"\r\n\r\n".len();
    head.resize(head.len() + filler_bytes, b'f');
    head.extend_from_slice(b"\r\n\r\n");
    head
}

/// Random-looking bytes, different for each `seed`; the first is no letter, so that no method
/// begins here by chance, and a line ends among the first few hundred.
pub(super) fn garbage(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes: Vec<u8> = (0..512)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect();
    bytes[0] |= 0x80;
    bytes[300..304].copy_from_slice(b"\r\n\r\n");
    bytes
}

/// The first flight of a TLS 1.3 client: a record of a ClientHello with random, session and a
/// cipher suite.
pub(super) fn client_hello(seed: u64) -> Vec<u8> {
    let noise = garbage(seed);
    let mut hello = vec![0x03, 0x03];
    hello.extend_from_slice(&noise[..32]);
    hello.push(32);
    hello.extend_from_slice(&noise[32..64]);
    // One cipher suite, no compression, one extension: supported versions, TLS 1.3.
    hello.extend_from_slice(&[0, 2, 0x13, 0x01, 1, 0, 0, 7, 0, 43, 0, 3, 2, 3, 4]);
    let mut record = vec![0x16, 0x03, 0x01];
    record.extend_from_slice(&(hello.len() as u16 + 4).to_be_bytes());
    record.extend_from_slice(&[1, 0]);
    record.extend_from_slice(&(hello.len() as u16).to_be_bytes());
    record.extend_from_slice(&hello);
    record
}

/// Asks for more ranges of a file than a server would serve one by one, overlapping and backwards.
pub(super) fn many_ranges(path: &str) -> Vec<u8> {
    let ranges: Vec<String> = (0..400).rev().map(|first| format!("{first}-")).collect();
    let ranges = ranges.join(",");
    format!("GET {path} HTTP/1.1\r\nHost: hostile\r\nRange: bytes={ranges}\r\n\r\n").into_bytes()
}

// The well-behaved client: `millpond load` at a constant rate over keep-alive connections.

/// Connections of the client: one is free whenever a request is due, unless no response came for 32
/// ms.
pub(crate) const CONNECTIONS: usize = 64;

/// Newcomers at a time, each with a connection of its own for its one request.
const NEWCOMERS: &str = "4";
const NEWCOMERS_PER_S: &str = "250";

/// How it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    /// So many requests, however long they take.
    Requests(u64),
    /// So long.
    Time(Duration),
}

/// Its target, how often, and where it runs.
#[derive(Debug)]
pub(crate) struct GoodClient<'a> {
    pub(crate) millpond: &'a Path,
    pub(crate) cpu: usize,
    /// Words in front of the program: its priority.
    pub(crate) before: &'a [&'static str],
    pub(crate) path: &'a str,
    pub(crate) rate_per_s: u64,
    pub(crate) amount: Amount,
    /// Before its responses count. Newcomers are measured separately, see
    /// [`GoodClient::run_newcomers`].
    pub(crate) warm_up: Duration,
    /// How long newcomers come.
    pub(crate) newcomers: Duration,
    /// Where its record goes.
    pub(crate) record: PathBuf,
}

/// Its results.
#[derive(Clone, Debug)]
pub(crate) struct Experience {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    /// From when it left to when the kernel had the response.
    pub(crate) kernel_p50_ns: f64,
    pub(crate) kernel_p99_ns: f64,
    /// Every request that got a response.
    pub(super) exchanges: Vec<Exchange>,
}

/// One run on its way.
pub(crate) struct Running {
    child: Child,
    record: PathBuf,
}

impl GoodClient<'_> {
    pub(crate) fn start(&self, subject: &Subject) -> Result<Running, String> {
        let limit = match self.amount {
            Amount::Requests(_) => super::subject::PATIENCE,
            Amount::Time(time) => time + super::subject::PATIENCE,
        };
        let (connections, rate) = (CONNECTIONS.to_string(), self.rate_per_s.to_string());
        let amount = match self.amount {
            Amount::Requests(count) => ["--requests".to_owned(), count.to_string()],
            Amount::Time(time) => ["--duration".to_owned(), in_ms(time)],
        };
        let warm_up = in_ms(self.warm_up);
        let mut words = vec!["-c", &connections, "-R", &rate, "--warm-up", &warm_up];
        words.extend(amount.iter().map(String::as_str));
        self.spawn(subject, limit, &words)
    }

    /// Clients that come for one request each: what the door is like.
    pub(crate) fn run_newcomers(&self, subject: &Subject) -> Result<Experience, String> {
        let words = ["-c", NEWCOMERS, "-R", NEWCOMERS_PER_S, "--no-keepalive"];
        let time = in_ms(self.newcomers);
        let words = [&words[..], &["--duration", &time]].concat();
        self.spawn(subject, super::subject::PATIENCE, &words)?
            .finish()
    }

    fn spawn(&self, subject: &Subject, limit: Duration, words: &[&str]) -> Result<Running, String> {
        let mut command = bounded(self.cpu, limit);
        command.args(self.before).arg(self.millpond);
        // Of the two drivers, the one to whose receives the kernel adds its stamps.
        command.args(["load", "-t", "1", "--driver", "epoll", "--timeout", "30s"]);
        let mut exchanges = OsString::from("requests=");
        exchanges.push(exchanges_beside(&self.record));
        command.args(words).arg("--json").arg(&self.record);
        command.arg("--print").arg(exchanges);
        command.arg(format!("http://{}{}", subject.address, self.path));
        let record = self.record.clone();
        let complaints = complaints_beside(&record);
        let file = File::create(&complaints)
            .map_err(|error| format!("{}: {error}", complaints.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        Ok(Running { child, record })
    }

    pub(crate) fn run(&self, subject: &Subject) -> Result<Experience, String> {
        self.start(subject)?.finish()
    }
}

/// Where it writes a line for each request.
fn exchanges_beside(record: &Path) -> PathBuf {
    record.with_extension("csv")
}

/// Where it writes what goes wrong.
fn complaints_beside(record: &Path) -> PathBuf {
    record.with_extension("stderr")
}

fn in_ms(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

impl Running {
    pub(crate) fn finish(mut self) -> Result<Experience, String> {
        let status = self
            .child
            .wait()
            .map_err(|error| format!("millpond load: {error}"))?;
        // It judges its own figures with 4; its errors are judged here.
        if !matches!(status.code(), Some(0 | 4)) {
            let complaints = std::fs::read_to_string(complaints_beside(&self.record));
            let complaints = complaints.unwrap_or_else(|error| error.to_string());
            return Err(format!(
                "millpond load ended with {status}: {}",
                complaints.trim()
            ));
        }
        let shown = self.record.display();
        let text =
            std::fs::read_to_string(&self.record).map_err(|error| format!("{shown}: {error}"))?;
        let record: Value =
            serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
        let phases = record["errors"].as_object();
        let phases = phases.ok_or_else(|| format!("{shown} has no errors"))?;
        let kernel = |which: &str| {
            record["kernel_service_ns"][which]
                .as_f64()
                .ok_or_else(|| format!("{shown} has no kernel_service_ns.{which}"))
        };
        Ok(Experience {
            requests: record["requests"].as_u64().unwrap_or_default(),
            errors: phases.values().filter_map(Value::as_u64).sum(),
            kernel_p50_ns: kernel("p50")?,
            kernel_p99_ns: kernel("p99")?,
            exchanges: read(&exchanges_beside(&self.record))?,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
#[path = "tests/exchanges.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/answers.rs"]
mod answers_tests;

#[cfg(test)]
#[path = "tests/pair.rs"]
mod pair_tests;

#[cfg(test)]
#[path = "tests/apart.rs"]
mod apart_tests;

#[cfg(test)]
#[path = "tests/payload.rs"]
mod payload_tests;
