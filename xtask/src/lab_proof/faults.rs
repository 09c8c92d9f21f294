//! The server that is compared, and what is planted in it.
//!
//! On the path: `lab_proof` tries a plain server once and gets settings for two: the baseline, and the same
//! with a fault in each measure.
//!
//! The baseline has work and stalls of its own, because faults are told by measures that the server decides.
//! A plain server of two words answers faster than the generator asks: its throughput is the generator's. And
//! its p99 is the machine's: a virtual CPU that is taken away for a millisecond or more, some ten times a
//! second, keeps more than one request of a hundred waiting, and how many more is another number in each run,
//! by a factor of three and more. A sleep of the whole server for 20 ms, as a collector's pause is, keeps a
//! fifth of them waiting for up to those 20 ms, so that the p99 lies near its length and grows with it. Shorter
//! ones are drowned when two such losses meet.
//!
//! Absent on purpose: an exact truth for times. It is the median of all comparisons' estimates.

use super::record::Comparison;
use super::{CPU, EMULATED, HEAP_CALLS, INSTRUCTIONS, P99, PLANTED, RSS, THROUGHPUT};
use std::fmt;

/// Additional instructions, as a share of all of a request's. It takes hardware counters to see them.
const WORK_SHARE: f64 = 0.01;
/// Without counters CPU time stands in, which is not as fine: a share of a request's CPU time.
const CPU_SHARE: f64 = 0.05;
/// What the baseline does more than a plain server, as a share of the CPU time of a request: enough that the
/// server is what limits throughput.
const OWN_WORK_SHARE: f64 = 0.5;
/// A turn of three instructions takes a cycle: so many in a nanosecond, roughly. The size of the fault
/// follows from it, not the truth it is compared with.
const TURNS_PER_NS: f64 = 3.0;
const TURN_INSTRUCTIONS: f64 = 3.0;
/// How long the baseline sleeps, and after how much work of a plain server at full speed.
const STALL_US: f64 = 20_000.0;
const STALL_AFTER_S: f64 = 0.04;
/// How much longer the planted sleep is: so much more p99, as it is a little less than the sleep.
const P99_SHARE: f64 = 0.03;
/// How much more is resident.
const RSS_SHARE: f64 = 0.05;
/// What a kernel gives memory in.
const PAGE_BYTES: f64 = 4096.0;

/// What `preload/plant` is told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    instructions: f64,
    stall_every: f64,
    stall_us: f64,
    retain_bytes: f64,
}

impl fmt::Display for Settings {
    /// As `millpond compare` takes settings of an allocator; what is zero is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("PLANT_INSTRUCTIONS", self.instructions),
            ("PLANT_STALL_EVERY", self.stall_every),
            ("PLANT_STALL_US", self.stall_us),
            ("PLANT_RETAIN_BYTES", self.retain_bytes),
        ];
        let set = all.into_iter().filter(|&(_, value)| value > 0.0);
        let words: Vec<String> = set.map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&words.join(","))
    }
}

/// What is planted, and where it has to show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) measure: &'static str,
    /// For the table.
    pub(crate) planted: String,
    /// What is added to the measure, where that is the truth.
    pub(crate) added: Option<f64>,
}

/// The two servers, and how they differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scene {
    pub(crate) baseline: Settings,
    pub(crate) planted: Settings,
    pub(crate) faults: Vec<Fault>,
}

impl Scene {
    /// After a look at a plain server.
    pub(crate) fn sized(scout: &Comparison) -> Result<Self, String> {
        let allocations = allocations_of(scout, 0.1)?;
        let requests = scout.baseline(THROUGHPUT)? * STALL_AFTER_S;
        let own_ns = scout.baseline(CPU)? * OWN_WORK_SHARE;
        let baseline = Settings {
            instructions: turning(own_ns, allocations),
            stall_every: (requests * allocations).ceil().max(1.0),
            stall_us: STALL_US,
            retain_bytes: 0.0,
        };
        let (work, instructions) = working(scout, allocations, baseline.instructions)?;
        let memory = retaining(scout.baseline(RSS)?, RSS_SHARE);
        let planted = Settings {
            instructions: baseline.instructions + instructions,
            stall_us: (STALL_US * (1.0 + P99_SHARE)).round(),
            retain_bytes: memory.added.unwrap_or(0.0),
            ..baseline
        };
        let stall = Fault {
            measure: P99,
            planted: format!(
                "{} us in place of {} us in one allocation of {}",
                planted.stall_us, baseline.stall_us, baseline.stall_every
            ),
            added: None,
        };
        let both = Fault {
            measure: THROUGHPUT,
            planted: "the work and the stalls".to_owned(),
            added: None,
        };
        Ok(Self {
            baseline,
            planted,
            faults: vec![work, stall, memory, both],
        })
    }

    /// Memory alone, so large that nothing hides it, beside a plain server.
    pub(crate) fn of_memory(scout: &Comparison, share: f64) -> Result<Self, String> {
        let memory = retaining(scout.baseline(RSS)?, share);
        Ok(Self {
            baseline: Settings::default(),
            planted: Settings {
                retain_bytes: memory.added.unwrap_or(0.0),
                ..Settings::default()
            },
            faults: vec![memory],
        })
    }

    /// Instructions alone, of a server that allocates for each request: so many more of them, beside the object
    /// that plants next to nothing.
    pub(crate) fn of_work(scout: &Comparison) -> Result<Self, String> {
        // So many whole ones for each request. What is counted beyond belongs to the connections, and is in
        // all runs of an emulator alike.
        let allocations = allocations_of(scout, 1.0)?.round();
        let counted = [INSTRUCTIONS, EMULATED].into_iter();
        let mut counted = counted.filter_map(|one| Some((one, scout.baseline(one).ok()?)));
        let (measure, all) = counted.next().ok_or(
            "nothing counts instructions here: neither the processor nor valgrind (apt install valgrind)",
        )?;
        let turns = (all * WORK_SHARE / allocations / TURN_INSTRUCTIONS).ceil();
        let added = turns * TURN_INSTRUCTIONS;
        let baseline = Settings {
            instructions: TURN_INSTRUCTIONS,
            ..Settings::default()
        };
        let planted = Settings {
            instructions: TURN_INSTRUCTIONS + added,
            ..baseline
        };
        let fault = Fault {
            measure,
            planted: format!("{added} instructions in each of {allocations} allocations"),
            added: Some(added * allocations),
        };
        Ok(Self {
            baseline,
            planted,
            faults: vec![fault],
        })
    }

    /// What `--allocators` takes, with the object to preload. The baseline comes first.
    pub(crate) fn allocators(&self, object: &str) -> String {
        let baseline = match self.baseline == Settings::default() {
            true => "glibc".to_owned(),
            false => format!("base={object}:{}", self.baseline),
        };
        format!("{baseline},{PLANTED}={object}:{}", self.planted)
    }
}

/// How often a request allocates, which is at least so often or nothing can be planted.
fn allocations_of(scout: &Comparison, least: f64) -> Result<f64, String> {
    let allocations = scout.baseline(HEAP_CALLS)?;
    if allocations < least {
        return Err(format!(
            "the server makes {allocations} heap calls for a request: nothing can be planted there"
        ));
    }
    Ok(allocations)
}

/// Instructions of each allocation that take so long for a request.
fn turning(ns: f64, allocations: f64) -> f64 {
    let turns = (ns * TURNS_PER_NS / allocations).ceil();
    TURN_INSTRUCTIONS * turns.max(1.0)
}

/// The fault in work, and its instructions in each allocation, beside those the baseline has there.
fn working(scout: &Comparison, allocations: f64, own: f64) -> Result<(Fault, f64), String> {
    let (measure, instructions, what) = match scout.baseline(INSTRUCTIONS) {
        Ok(all) => {
            let all = all / allocations + own;
            (
                INSTRUCTIONS,
                (all * WORK_SHARE).ceil().max(TURN_INSTRUCTIONS),
                "",
            )
        }
        Err(_) => {
            let all_ns = scout.baseline(CPU)? * (1.0 + OWN_WORK_SHARE);
            let instructions = turning(all_ns * CPU_SHARE, allocations);
            (CPU, instructions, "; no counters here, so CPU time")
        }
    };
    let fault = Fault {
        measure,
        planted: format!("{instructions} instructions an allocation beside {own}{what}"),
        added: None,
    };
    Ok((fault, instructions))
}

fn retaining(rss_bytes: f64, share: f64) -> Fault {
    let added_bytes = (rss_bytes * share / PAGE_BYTES).round() * PAGE_BYTES;
    Fault {
        measure: RSS,
        planted: format!("{:.0} KiB more RSS", added_bytes / 1024.0),
        added: Some(added_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scout(measures: &serde_json::Value) -> Comparison {
        Comparison::of_record(json!({
            "candidates": [{"role": "baseline", "rounds": [{"measures": measures}]}]
        }))
    }

    /// Goal: what is planted follows from what a request costs, in whole turns and pages; the baseline
    /// stalls as often as the other, and for less.
    #[test]
    fn faults_are_sized_by_the_plain_server() {
        let plain =
            json!({HEAP_CALLS: 2.0, THROUGHPUT: 100_000.0, CPU: 8_000.0, RSS: 20_000_000.0});
        let scene = Scene::sized(&scout(&plain)).unwrap();
        let (base, planted) = (scene.baseline, scene.planted);
        // 4 us of a request are 6000 turns in each of two allocations.
        assert_eq!(
            (base.instructions, planted.instructions),
            (18_000.0, 18_000.0 + 2_700.0)
        );
        assert_eq!((base.stall_every, planted.stall_every), (8_000.0, 8_000.0));
        assert_eq!((base.stall_us, planted.stall_us), (20_000.0, 20_600.0));
        assert_eq!(
            (base.retain_bytes, planted.retain_bytes % 4096.0),
            (0.0, 0.0)
        );
        let measures: Vec<_> = scene.faults.iter().map(|fault| fault.measure).collect();
        assert_eq!(measures, [CPU, P99, RSS, THROUGHPUT]);
        assert_eq!(
            scene.allocators("/x.so"),
            "base=/x.so:PLANT_INSTRUCTIONS=18000,PLANT_STALL_EVERY=8000,PLANT_STALL_US=20000,planted=/x.so:\
             PLANT_INSTRUCTIONS=20700,PLANT_STALL_EVERY=8000,PLANT_STALL_US=20600,PLANT_RETAIN_BYTES=999424"
        );
    }

    /// Goal: counters are taken where there are some, with the baseline's own instructions; a server
    /// without heap calls is no subject; the smoke run's baseline is plain.
    #[test]
    fn counters_come_first_and_a_server_without_calls_is_refused() {
        let counted = json!({HEAP_CALLS: 1.0, THROUGHPUT: 1_000.0, CPU: 8_000.0, INSTRUCTIONS: 10_000.0,
            RSS: 20_000_000.0});
        let scene = Scene::sized(&scout(&counted)).unwrap();
        assert_eq!(scene.faults[0].measure, INSTRUCTIONS);
        assert_eq!(
            scene.planted.instructions - scene.baseline.instructions,
            460.0
        );
        let counted = json!({HEAP_CALLS: 4.03, EMULATED: 30_000.0});
        let work = Scene::of_work(&scout(&counted)).unwrap();
        let (base, planted) = (work.baseline.instructions, work.planted.instructions);
        // 1 % is 75 in each, which is 25 turns.
        assert_eq!((base, planted), (3.0, 78.0));
        assert_eq!(work.faults[0].added, Some(300.0));
        assert!(Scene::of_work(&scout(&json!({HEAP_CALLS: 4.0}))).is_err());
        let silent = json!({HEAP_CALLS: 0.0, THROUGHPUT: 1.0, CPU: 1.0, RSS: 1.0});
        assert!(Scene::sized(&scout(&silent)).is_err());
        let memory = Scene::of_memory(&scout(&json!({RSS: 10_000_000.0})), 0.3).unwrap();
        assert_eq!(
            memory.allocators("/x.so"),
            "glibc,planted=/x.so:PLANT_RETAIN_BYTES=2998272"
        );
    }
}
