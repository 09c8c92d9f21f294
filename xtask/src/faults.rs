//! A fault matrix: everything that a server acquires at run time fails, once at each point and for a while altogether.
//!
//! strace injects the failures; see [`kind`] for the calls. A scenario is fixed: a start, writes, reads, a range, a memtable
//! that is written to a table, a stop or a kill, and another start. First it runs without failures and is counted.
//! Then it runs with the n-th call of each thread failing, for every n up to the largest count of any thread: strace counts
//! for each thread apart, so a run may fail one call in each of several threads. Last, a server that serves meets
//! nothing but failures of a kind while it is asked, and has to serve again once they are over.
//!
//! Allowed is: to go on, with refusals (5xx, a closed connection) as long as calls fail; or to end, or not to start, with a
//! status other than 0 and a sentence that names what failed. Never: a wrong answer, a hang, a panic, an acknowledged
//! write that is not there, also after `kill -9`. Excluded are io_uring's own operations (accept, connect and so on in
//! the ring are no calls; the simulator fails those), syncs, reads and writes of files (`cargo xtask crash` fails
//! each of those), and brk, whose failure cannot be injected. Where the dynamic loader, Rust's runtime or RocksDB end the
//! process in their own way, that is counted apart, with the reason, and RocksDB's end needs our sentence beside
//! its own; see `kind::excluded`.

mod kind;
mod scenario;
mod strace;
mod subject;

use crate::bench::{self, Bench};
use crate::hostile::resources::upstream::Upstream;
use kind::{KINDS, Kind};
use scenario::{Course, Place};
use std::collections::BTreeMap;
use std::time::Instant;
use subject::Program;

/// Of the points of a call, one of so many is tried by the slow tier.
const SMOKE_STEP: u64 = 5;

/// Every point, or one in some for a moment's look; of all servers and calls, or of those named.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let is_smoke = words.contains(&"--smoke");
    let names: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "--smoke")
        .collect();
    check_names(&names)?;
    if !strace::is_usable() {
        println!("not run: strace is missing, or may not trace; scripts/setup verify installs it");
        return Ok(());
    }
    // The development build: what it asserts besides is welcome here.
    let bench = bench::prepare(bench::Plan::smoke(), true)?;
    let upstream = Upstream::start()?;
    let mut failures = Vec::new();
    for program in Program::ALL {
        for driver in ["uring", "epoll"] {
            let words = [program.name(), driver];
            if !is_chosen(&names, &words[..1], &Program::ALL.map(Program::name)) {
                continue;
            }
            if !is_chosen(&names, &words[1..], &["uring", "epoll"]) {
                continue;
            }
            let place = Place {
                program,
                driver,
                millpond: bench.millpond.clone(),
                directory: directory_of(&bench),
                upstream: &upstream,
            };
            matrix(&place, &names, is_smoke, &mut failures)?;
            // It is emptied before it is used.
            let _ = std::fs::remove_dir_all(&place.directory);
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} points fail; they are printed above",
            failures.len()
        )),
    }
}

fn directory_of(bench: &Bench) -> std::path::PathBuf {
    bench.scratch.join(format!("faults-{}", std::process::id()))
}

/// Whether one of these is named, or none of their kind is.
fn is_chosen(names: &[&str], words: &[&str], of_kind: &[&str]) -> bool {
    let is_restricted = names.iter().any(|name| of_kind.contains(name));
    !is_restricted || words.iter().any(|word| names.contains(word))
}

fn check_names(names: &[&str]) -> Result<(), String> {
    let programs = Program::ALL.map(Program::name);
    let unknown = names.iter().find(|name| {
        !programs.contains(name)
            && !["uring", "epoll"].contains(name)
            && kind::named(name).is_none()
    });
    match unknown {
        None => Ok(()),
        Some(name) => {
            let calls: Vec<&str> = KINDS.iter().map(|kind| kind.call).collect();
            Err(format!(
                "{name} is neither a server ({}), a driver (uring, epoll) nor a call ({})",
                programs.join(", "),
                calls.join(", ")
            ))
        }
    }
}

/// All points of one server with one driver. One that fails is printed, and the others follow.
fn matrix(
    place: &Place<'_>,
    names: &[&str],
    is_smoke: bool,
    failures: &mut Vec<String>,
) -> Result<(), String> {
    let title = format!("{} {}", place.program.name(), place.driver);
    let counts = match place.count_calls() {
        Ok(counts) => counts,
        // No io_uring here, for instance.
        Err(sentence) if place.driver == "uring" => {
            println!("not run: {title}: {sentence}");
            return Ok(());
        }
        Err(sentence) => return Err(format!("{title} without failures: {sentence}")),
    };
    let all: Vec<&str> = KINDS.iter().map(|kind| kind.call).collect();
    for kind in KINDS {
        let count = counts.get(kind.call).copied().unwrap_or_default();
        if count > 0 && is_chosen(names, &[kind.call], &all) {
            let step = if is_smoke { SMOKE_STEP } else { 1 };
            points(place, kind, (count, step), &title, failures);
        }
    }
    Ok(())
}

/// All points of one call, as one line, with a line for each that fails.
fn points(
    place: &Place<'_>,
    kind: &Kind,
    (count, step): (u64, u64),
    title: &str,
    failures: &mut Vec<String>,
) {
    let begun = Instant::now();
    let mut courses: BTreeMap<Course, u64> = BTreeMap::new();
    let once = (1..=count).step_by(step as usize).map(|number| {
        (
            format!("call {number} of {count}"),
            place.fail_once(kind, number),
        )
    });
    let always = std::iter::once_with(|| {
        (
            "every call while serving".to_owned(),
            place.fail_always(kind),
        )
    });
    for (point, outcome) in once.chain(always) {
        match outcome {
            Ok(course) => *courses.entry(course).or_default() += 1,
            Err(sentence) => {
                println!(
                    "FAILED: {title}: {} with {}, {point}: {sentence}",
                    kind.call, kind.error
                );
                failures.push(point);
            }
        }
    }
    let courses: Vec<String> = courses
        .iter()
        .map(|(course, count)| match course {
            Course::Excluded(why) => format!("{count} excluded ({why})"),
            course => format!("{count} {}", course.name()),
        })
        .collect();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{title:<13} {:<18} {:<13} {count:>3} calls: {}; {seconds:.0} s",
        kind.call,
        kind.error,
        courses.join(", ")
    );
}

/// Goal: a name restricts its own kind alone, and one that is none is refused with the list.
#[test]
fn names_choose_points() {
    let drivers = ["uring", "epoll"];
    assert!(is_chosen(&["mmap"], &["uring"], &drivers));
    assert!(is_chosen(&["uring", "mmap"], &["uring"], &drivers));
    assert!(!is_chosen(&["uring", "mmap"], &["epoll"], &drivers));
    assert!(check_names(&["entity", "epoll", "socket"]).is_ok());
    let sentence = check_names(&["sokcet"]).unwrap_err();
    assert!(
        sentence.contains("socket") && sentence.contains("proxy"),
        "{sentence}"
    );
}
