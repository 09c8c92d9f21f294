//! What the well-behaved clients met in each turn, and what beside an attack is to that alone.

use super::good::Experience;
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
    fn to_json(&self) -> Value {
        let shown = |experience: &Experience| {
            json!({ "requests": experience.requests, "errors": experience.errors,
                "p50_ns": experience.p50_ns, "p99_ns": experience.p99_ns,
                "kernel_service_p50_ns": experience.kernel_p50_ns,
                "kernel_service_p99_ns": experience.kernel_p99_ns })
        };
        let newcomers = self.newcomers.as_ref().map(shown);
        json!({ "standing": shown(&self.standing), "newcomers": newcomers, "crowd": self.crowd })
    }
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
    alone: &[Turn],
    beside: &[Turn],
    [normal, after]: [Holdings; 2],
) -> (Vec<Figure>, Value) {
    let figure = |what: &str, clock: fn(&Turn) -> Option<f64>| {
        let pairs = alone.iter().zip(beside);
        let ratios = pairs.filter_map(|(alone, beside)| Some(clock(beside)? / clock(alone)?));
        let name = format!("{attack}_{driver}_{what}");
        Figure::median(name, ratios.collect())
    };
    let p99 = figure("p99_ratio", |turn| Some(turn.standing.kernel_p99_ns)).at_most(2.0);
    let response = figure("response_p99_ratio", |turn| Some(turn.standing.p99_ns));
    let p50 = figure("p50_ratio", |turn| Some(turn.standing.kernel_p50_ns));
    let newcomers = figure("newcomers_p50_ratio", |turn| {
        Some(turn.newcomers?.kernel_p50_ns)
    });
    let alone_ns = alone.iter().map(|turn| turn.standing.kernel_p99_ns);
    println!(
        "{attack:<34} {driver:<6} p99 {:>8.0} us alone, ratio {:>6.2}, response {:>6.2}; p50 {:>5.2}; \
         newcomers {:>5.2}; {} answers beside it, 0 errors; {:.1} MiB",
        Figure::median("", alone_ns.collect()).value / 1000.0,
        p99.value,
        response.value,
        p50.value,
        newcomers.value,
        beside
            .iter()
            .map(|turn| turn.standing.requests)
            .sum::<u64>(),
        most_mib(beside),
    );
    let detail = json!({
        "attack": attack,
        "driver": driver,
        "alone": alone.iter().map(Turn::to_json).collect::<Vec<_>>(),
        "beside": beside.iter().map(Turn::to_json).collect::<Vec<_>>(),
        "normal": { "resident_bytes": normal.resident_bytes, "descriptors": normal.descriptors },
        "after": { "resident_bytes": after.resident_bytes, "descriptors": after.descriptors },
    });
    let mut figures = vec![p99, response, p50];
    // There is no room for newcomers beside an attack that takes it all.
    figures.extend((!newcomers.runs.is_empty()).then_some(newcomers));
    (figures, detail)
}
