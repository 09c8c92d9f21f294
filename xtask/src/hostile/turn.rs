//! What the well-behaved clients met in each turn, and what beside an attack is to that alone.

use super::exchanges::undisturbed;
use super::good::Experience;
use super::stalls::{Stall, Stalls};
use super::subject::Holdings;
use crate::bench::figure::Figure;
use serde_json::{Value, json};

/// What was seen in one turn, alone or beside a crowd.
pub(super) struct Turn {
    /// By the clients that have been there for a while.
    pub(super) standing: Experience,
    pub(super) newcomers: Option<Experience>,
    /// What the crowd held, and what became of it.
    pub(super) crowd: Option<Value>,
}

impl Turn {
    fn to_json(&self, left_out: &[Stall]) -> Value {
        let shown = |experience: &Experience| {
            json!({ "requests": experience.requests, "errors": experience.errors,
                "p50_ns": experience.p50_ns, "p99_ns": experience.p99_ns,
                "kernel_service_p50_ns": experience.kernel_p50_ns,
                "kernel_service_p99_ns": experience.kernel_p99_ns })
        };
        let undisturbed = undisturbed(&self.standing.exchanges, left_out).map(|left| {
            json!({ "disturbed_share": left.disturbed_share, "p99_ns": left.response_p99_ns,
                "kernel_service_p99_ns": left.kernel_p99_ns })
        });
        let newcomers = self.newcomers.as_ref().map(shown);
        json!({ "standing": shown(&self.standing), "undisturbed": undisturbed,
            "newcomers": newcomers, "crowd": self.crowd })
    }

    /// The share of requests that these disturbed.
    fn disturbed_share(&self, stalls: &[Stall]) -> Option<f64> {
        Some(undisturbed(&self.standing.exchanges, stalls)?.disturbed_share)
    }
}

/// The same of some turns: the median.
fn disturbed_share(turns: &[Turn], stalls: &[Stall]) -> f64 {
    let shares = turns.iter().filter_map(|turn| turn.disturbed_share(stalls));
    Figure::median("", shares.collect()).value
}

/// The most that was resident beside a crowd.
fn most_mib(beside: &[Turn]) -> f64 {
    let crowds = beside.iter().filter_map(|turn| turn.crowd.as_ref());
    let held = crowds.filter_map(|crowd| crowd["resident_bytes"].as_f64());
    held.fold(0.0, f64::max) / f64::from(1 << 20)
}

/// What the turns of one attack come to, the p99 with its target, and all of them as JSON.
pub(super) fn summary(
    [attack, driver]: [&str; 2],
    [alone, beside]: [&[Turn]; 2],
    stalls: &Stalls,
    [normal, after]: [Holdings; 2],
) -> (Vec<Figure>, Value) {
    let figure = |what: &str, clock: &dyn Fn(&Turn) -> Option<f64>| {
        let pairs = alone.iter().zip(beside);
        let ratios = pairs.filter_map(|(alone, beside)| Some(clock(beside)? / clock(alone)?));
        Figure::median(format!("{attack}_{driver}_{what}"), ratios.collect())
    };
    let shares = [alone, beside].map(|turns| disturbed_share(turns, &stalls.of_server));
    let left_out = stalls.to_leave_out(shares);
    let left = |turn: &Turn| undisturbed(&turn.standing.exchanges, &left_out);
    let kernel = |turn: &Turn| Some(left(turn)?.kernel_p99_ns);
    let p99 = figure("p99_ratio", &kernel).at_most(2.0);
    let response = figure("response_p99_ratio", &|turn| {
        Some(left(turn)?.response_p99_ns)
    });
    let whole = figure("p99_ratio_with_stalls", &|turn| {
        Some(turn.standing.kernel_p99_ns)
    });
    let p50 = figure("p50_ratio", &|turn| Some(turn.standing.kernel_p50_ns));
    let newcomers = figure("newcomers_p50_ratio", &|turn| {
        Some(turn.newcomers.as_ref()?.kernel_p50_ns)
    });
    let share = |turns: &[Turn], stalls: &[Stall]| disturbed_share(turns, stalls) * 100.0;
    println!(
        "{attack:<34} {driver:<6} p99 {:>6.0} us alone, ratio {:>5.2}, response {:>5.2}; stalls of the \
         server's CPU {:.1} % alone, {:.1} % beside, of the generator's {:.1} %, {:.1} %, ratio with \
         all {:>5.2}; p50 {:>5.2}; newcomers {:>5.2}; {} answers \
         beside it, 0 errors; {:.1} MiB",
        Figure::median("", alone.iter().filter_map(kernel).collect()).value / 1000.0,
        p99.value,
        response.value,
        share(alone, &stalls.of_server),
        share(beside, &stalls.of_server),
        share(alone, &stalls.of_generator),
        share(beside, &stalls.of_generator),
        whole.value,
        p50.value,
        newcomers.value,
        beside
            .iter()
            .map(|turn| turn.standing.requests)
            .sum::<u64>(),
        most_mib(beside),
    );
    let shown = |turns: &[Turn]| -> Vec<Value> {
        let shown = turns.iter().map(|turn| turn.to_json(&left_out));
        shown.collect()
    };
    let detail = json!({
        "attack": attack,
        "driver": driver,
        "disturbed_share_of_server_cpu": { "alone": shares[0], "beside": shares[1] },
        "alone": shown(alone),
        "beside": shown(beside),
        "normal": { "resident_bytes": normal.resident_bytes, "descriptors": normal.descriptors },
        "after": { "resident_bytes": after.resident_bytes, "descriptors": after.descriptors },
    });
    let mut figures = vec![p99, response, whole, p50];
    // There is no room for newcomers beside an attack that takes it all.
    figures.extend((!newcomers.runs.is_empty()).then_some(newcomers));
    (figures, detail)
}
