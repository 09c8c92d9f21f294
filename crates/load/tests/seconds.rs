//! The seconds of a run against the run itself.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_load::{Clocks, Mode, Observer, Progress, Second, Stop, run_observed};
use millpond_measure::record::{LoadSecond, RunPart};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use support::{MS, Reply, TestServer, check_identities, get};

/// Keeps what it is shown.
#[derive(Default)]
struct Keeper {
    seconds: Mutex<Vec<LoadSecond>>,
    counted: Mutex<Clocks>,
    progress: Mutex<Vec<Progress>>,
}

impl Observer for Keeper {
    fn progress(&self, now: &Progress) {
        self.progress.lock().unwrap().push(*now);
    }

    fn second(&self, second: &Second<'_>) {
        self.seconds.lock().unwrap().push(second.figures.clone());
        if second.figures.part != RunPart::WarmUp {
            self.counted.lock().unwrap().merge(second.clocks);
        }
    }
}

/// Goal: the seconds shown during the run are, bin by bin, the run: in an open and in a closed
/// loop, with warm-up apart, over threads, with failures.
#[test]
fn shown_seconds_are_the_run() {
    for mode in [Mode::ClosedLoop, Mode::ConstantRate { per_s: 1_000.0 }] {
        let server = TestServer::start(|seen| match seen.number % 50 {
            7 => Reply::status(500, b"no"),
            _ => Reply::ok(b"yes"),
        });
        let mut config = get(server.address);
        config.mode = mode;
        config.threads = 2;
        config.connections = 3;
        config.warm_up = millpond_load::WarmUp::Lasting {
            duration_ns: 300 * MS,
        };
        config.stop = Stop::after_ns(1_400 * MS);
        let keeper = Keeper::default();
        let record = run_observed(&config, &keeper, &AtomicBool::new(false)).unwrap();
        check_identities(&record);
        let seconds = keeper.seconds.into_inner().unwrap();
        let counted = keeper.counted.into_inner().unwrap();
        assert_eq!(record.seconds, seconds);
        assert_eq!(counted.response, record.response);
        assert_eq!(counted.service, record.service);
        assert_eq!(counted.slip, record.slip);

        use RunPart::{Drain, WarmUp, Window};
        let cuts = seconds.iter().filter(|one| one.part != Drain);
        let cuts: Vec<(RunPart, u64, u64)> = cuts
            .map(|one| (one.part, one.start_ns / MS, one.duration_ns / MS))
            .collect();
        let planned = [(WarmUp, 0, 300), (Window, 300, 1_000), (Window, 1_300, 400)];
        // One in which the machine let no thread of the generator run is not shown.
        assert!(cuts.iter().all(|cut| planned.contains(cut)), "{cuts:?}");
        assert!(cuts.is_sorted_by_key(|cut| cut.1), "{cuts:?}");
        // Warm-up is shown, with its failures; responses to it after its end are not.
        let answers = |one: &LoadSecond| one.requests + one.errors.status;
        let shown: u64 = seconds.iter().map(answers).sum();
        let counted = record.requests + record.errors.status;
        assert!((counted..=server.requests()).contains(&shown), "{shown}");
        let of_window = |value: fn(&LoadSecond) -> u64| -> u64 {
            let counted = seconds.iter().filter(|one| one.part != WarmUp);
            counted.map(value).sum()
        };
        assert_eq!(of_window(|one| one.requests), record.requests);
        assert_eq!(of_window(|one| one.errors.status), record.errors.status);
        assert_eq!(of_window(|one| one.bytes_received), record.bytes_received);
        assert_eq!(of_window(|one| one.sent), record.sent);
        let progress = keeper.progress.into_inner().unwrap();
        assert!(progress.is_sorted_by_key(|one| one.elapsed_ns));
        assert!(progress.iter().all(|one| one.completed <= record.requests));
    }
}

/// Records when it was called for the window's ends.
#[derive(Default)]
struct Ends {
    told: Mutex<Vec<&'static str>>,
}

impl Observer for Ends {
    fn window_began(&self) {
        self.told.lock().unwrap().push("began");
    }

    fn window_ended(&self) {
        self.told.lock().unwrap().push("ended");
    }
}

/// Goal: the observer is called at both ends of the window, once and in order, in a closed loop and at a constant rate,
/// whose threads are done with the last response, before the window's time is over.
#[test]
fn both_ends_of_the_window_are_told() {
    let server = TestServer::start(|_| Reply::ok(b"yes"));
    for mode in [Mode::ClosedLoop, Mode::ConstantRate { per_s: 7.0 }] {
        let mut config = get(server.address);
        config.mode = mode;
        config.warm_up = millpond_load::WarmUp::Lasting {
            duration_ns: 30 * MS,
        };
        config.stop = Stop::after_ns(200 * MS);
        let ends = Ends::default();
        run_observed(&config, &ends, &AtomicBool::new(false)).unwrap();
        assert_eq!(*ends.told.lock().unwrap(), ["began", "ended"]);
    }
}
