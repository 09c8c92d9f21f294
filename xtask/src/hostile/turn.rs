//! What the well-behaved clients met in each turn, and what beside an attack is to that alone.

use super::exchanges::undisturbed;
use super::good::Experience;
use super::stalls::{Stall, Stalls, Stood};
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
    Figure::median("", shares.collect()).value
}

/// The most that was resident beside a crowd.
fn most_mib(beside: &[Turn]) -> f64 {
    let crowds = beside.iter().filter_map(|turn| turn.crowd.as_ref());
    let held = crowds.filter_map(|crowd| crowd["resident_bytes"].as_f64());
    held.fold(0.0, f64::max) / f64::from(1 << 20)
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
        let mut figures = vec![self.p99, self.response, self.whole, self.p50];
        // There is no room for newcomers beside an attack that takes it all.
        figures.extend((!self.newcomers.runs.is_empty()).then_some(self.newcomers));
        figures
    }
}

/// What the turns of one attack come to, the p99 with its target, and all of them as JSON.
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
    let alone_ns = alone
        .iter()
        .filter_map(|turn| turn.kernel_p99_ns(&left_out));
    let percent = |turns: &[Turn], stalls: &[Stall]| disturbed_share(turns, stalls) * 100.0;
    println!(
        "{attack:<34} {driver:<6} {} pairs, p99 {:>6.0} us alone, ratio {:>5.2}{}, response {:>5.2}; disturbed by \
         stalls of the server's CPU {:.1} % alone, {:.1} % beside, of the generator's {:.1} %, {:.1} %, \
         ratio with all {:>5.2}; p50 {:>5.2}; newcomers {:>5.2}; {} answers beside it, 0 errors; {:.1} MiB",
        alone.len(),
        Figure::median("", alone_ns.collect()).value / 1000.0,
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
        "is_judged": is_judged,
        "disturbed_share_of_server_cpu": { "alone": shares[0], "beside": shares[1] },
        "server_cpu_stood_beside_ns": { "seen": stood.seen_ns, "stolen": stood.stolen_ns },
        "alone": shown(alone),
        "beside": shown(beside),
        "normal": { "resident_bytes": normal.resident_bytes, "descriptors": normal.descriptors },
        "after": { "resident_bytes": after.resident_bytes, "descriptors": after.descriptors },
    });
    (ratios.into_figures(), detail)
}
