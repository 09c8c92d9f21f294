//! What the well-behaved clients met in each turn, and what beside an attack is to that alone.

use super::exchanges::undisturbed;
use super::good::Experience;
use super::stalls::{Stall, Stalls, Stood};
use super::subject::Holdings;
use crate::bench::figure::Figure;
use crate::bench::record::Spread;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What was seen in one turn, alone or beside a crowd.
pub(super) struct Turn {
    /// By the clients that have been there for a while.
    pub(super) standing: Experience,
    pub(super) newcomers: Option<Experience>,
    /// What the crowd held, and what became of it.
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

/// What beside an attack is to what is alone: medians of pairs.
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

/// What the turns of one attack come to: figures, the p99 with its target, and a line for the record.
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
         ratio with all {:>5.2}; p50 {:>5.2}; newcomers {:>5.2}; {} answers beside it, 0 errors; {:.1} MiB",
        alone.len(),
        p99_ns(alone) / 1000.0,
        ratios.p99.value,
        match is_judged {
            true => "",
            false => " (not judged: the machine is restless)",
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
