//! The needs of `serve` and `proxy`.

use super::machine::Limit;
use super::{Attempts, Finding, FindingState, Machine, Section};
use millpond_io::listener::BACKLOG;
use millpond_io::{DriverFeature, DriverFeatures, IoError, UringUnavailable};
use millpond_measure::units::format_bytes;

/// Files that a server has open besides its connections, with room for what is being opened.
pub const OTHER_FILES: u64 = 116;
/// The connections a server takes by default, and its other files.
const OPEN_FILES: u64 = 16_384 + OTHER_FILES;
/// With fewer not even a small server starts.
const OPEN_FILES_MIN: u64 = 64;
/// The entity server's default memory, with the process itself.
const MEMORY_BYTES: u64 = 288 << 20;

pub(super) fn findings(machine: &Machine, attempts: &Attempts) -> Vec<Finding> {
    let mut findings = drivers(attempts);
    findings.push(loopback(attempts));
    findings.extend(machine.open_files().map(open_files));
    findings.extend(backlog(machine));
    findings.push(cpus(machine));
    findings.extend(memory(machine));
    findings
}

fn ok(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::ok(Section::Serving, name, found)
}

fn weak(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::weak(Section::Serving, name, found)
}

fn missing(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::missing(Section::Serving, name, found)
}

/// One of the two has to be there.
fn drivers(attempts: &Attempts) -> Vec<Finding> {
    let worst = match (&attempts.uring, &attempts.epoll) {
        (Err(_), Err(_)) => FindingState::Missing,
        _ => FindingState::Weak,
    };
    let uring = match &attempts.uring {
        Ok(features) => ok("io_uring", features_in_words(*features)),
        Err(error) => {
            let (why, remedy) = uring_unavailable(error);
            let stand_in = match worst {
                FindingState::Missing => "",
                _ => "; servers use epoll by themselves",
            };
            Finding {
                state: worst,
                ..weak("io_uring", format!("{why}{stand_in}")).remedy(remedy)
            }
        }
    };
    let epoll = match &attempts.epoll {
        Ok(()) => ok("epoll", "works"),
        Err(error) => Finding {
            state: worst,
            ..weak("epoll", error.clone()).remedy(
                "allow the calls epoll_create1, epoll_ctl and epoll_wait in the container's seccomp \
                 profile",
            )
        },
    };
    vec![uring, epoll]
}

fn features_in_words(features: DriverFeatures) -> String {
    let names = |has: bool| -> Vec<&str> {
        DriverFeature::ALL
            .into_iter()
            // Used by --busy-poll alone, so the probe does not check it.
            .filter(|feature| *feature != DriverFeature::TaskRunFlag)
            .filter(|feature| features.has(*feature) == has)
            .map(DriverFeature::name)
            .collect()
    };
    let lacking = names(false);
    let found = format!("works, with {}", names(true).join(", "));
    match lacking.is_empty() {
        true => found,
        false => format!("{found}; this kernel lacks {}", lacking.join(", ")),
    }
}

/// Why there is none, and what to do.
fn uring_unavailable(error: &IoError) -> (String, &'static str) {
    let IoError::UringUnavailable(why) = error else {
        return (error.to_string(), "nothing has to be done: epoll serves");
    };
    let remedy = match why {
        UringUnavailable::Disabled { .. } => "sysctl -w kernel.io_uring_disabled=0",
        UringUnavailable::Forbidden { .. } => {
            "allow the calls io_uring_setup, io_uring_enter and io_uring_register in the container's \
             seccomp profile, if its owner agrees"
        }
        UringUnavailable::OutOfResources { .. } => "ulimit -l unlimited, or a higher ulimit -n",
        _ => "Linux 6.0 or newer has what is needed",
    };
    (why.to_string(), remedy)
}

fn loopback(attempts: &Attempts) -> Finding {
    match &attempts.loopback {
        Ok(()) => ok("loopback", "127.0.0.1 takes connections"),
        Err(error) => missing(
            "loopback",
            format!("127.0.0.1 takes no connections: {error}"),
        )
        .remedy("ip link set lo up"),
    }
}

fn open_files(limit: Limit) -> Finding {
    const NAME: &str = "open files";
    let Limit { soft, hard } = limit;
    if soft >= OPEN_FILES {
        return ok(NAME, format!("{soft} (ulimit -n)"));
    }
    let found = format!(
        "{soft} (ulimit -n): a server takes {} connections, and its default is 16384",
        soft.saturating_sub(OTHER_FILES)
    );
    let remedy = match hard >= OPEN_FILES {
        true => format!("ulimit -n {OPEN_FILES}"),
        false => format!(
            "as root: ulimit -n {OPEN_FILES}; lastingly `* - nofile 65536` in \
             /etc/security/limits.conf, LimitNOFILE=65536 in a systemd unit, or a smaller \
             --max-connections"
        ),
    };
    match soft < OPEN_FILES_MIN {
        true => missing(NAME, found).remedy(remedy),
        false => weak(NAME, found).remedy(remedy),
    }
}

fn backlog(machine: &Machine) -> Option<Finding> {
    let length = machine.number("proc/sys/net/core/somaxconn")?;
    Some(match length >= i64::from(BACKLOG) {
        true => ok("somaxconn", format!("{length} connections may wait for accept")),
        false => weak(
            "somaxconn",
            format!(
                "{length} connections may wait for accept: beyond that a burst of clients loses SYNs and \
                 waits a second for each"
            ),
        )
        .remedy(format!("sysctl -w net.core.somaxconn={BACKLOG}")),
    })
}

/// With the quota of the control groups, if they have one.
fn cpus(machine: &Machine) -> Finding {
    let cpus = machine.cpus;
    let of_cpus = match cpus {
        1 => "1 CPU".to_owned(),
        _ => format!("{cpus} CPUs"),
    };
    let quotas = machine.control_group_texts("cpu.max");
    let quota = quotas
        .iter()
        .filter_map(|text| quota_cpus(text))
        .reduce(f64::min);
    match quota {
        Some(quota) if quota < cpus as f64 => weak(
            "CPUs",
            format!(
                "{of_cpus}, of which a control group grants {quota:.2}: when they are used up, everything \
                 stands still for the rest of 100 ms, which shows as latency"
            ),
        )
        .remedy(
            "give whole CPUs instead of a quota (--cpuset-cpus 0-1, AllowedCPUs=), and --shards as \
             many",
        ),
        _ => ok("CPUs", format!("{of_cpus}, no quota")),
    }
}

/// `150000 100000` is one and a half.
fn quota_cpus(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn memory(machine: &Machine) -> Option<Finding> {
    let limits = machine.control_group_texts("memory.max");
    let limit = limits
        .iter()
        .filter_map(|text| text.parse::<u64>().ok())
        .min();
    let available = machine.available_bytes();
    let (bytes, source) = match (limit, available) {
        (Some(limit), Some(available)) if limit < available => {
            (limit, "granted by a control group")
        }
        (_, Some(available)) => (available, "available"),
        (Some(limit), None) => (limit, "granted by a control group"),
        (None, None) => return None,
    };
    let size = format_bytes(bytes as f64);
    Some(match bytes >= MEMORY_BYTES {
        true => ok("memory", format!("{size} {source}")),
        false => weak(
            "memory",
            format!("{size} {source}: `serve entity` takes 288 MiB unless told otherwise"),
        )
        .remedy("serve entity --memory 64MiB, or so much as is left with 32 MiB to spare"),
    })
}

#[cfg(test)]
#[path = "tests/serving.rs"]
mod tests;
