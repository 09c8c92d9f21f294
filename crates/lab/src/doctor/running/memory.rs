//! The memory of a running process as the kernel shows it, and the limits that it can meet.

use std::fs;
use std::path::Path;

use millpond_measure::environment::{MAPPINGS_SHARE, bracketed, mappings_max};
use millpond_measure::process::{Mapping, ProcessSample};
use millpond_measure::units::{format_bytes, format_percent};
use serde::Serialize;

use super::super::{Finding, Section};
use super::Status;
use crate::cgroup;

const SECTION: Section = Section::Memory;
/// A process that has used more of a limit is near it.
const LIMIT_SHARE: f64 = 0.9;

/// The kernel's figures.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Memory {
    /// Of the process.
    #[serde(flatten)]
    pub sample: ProcessSample,
    /// Writable memory without a file, resident or not: the heap segment and nameless mappings.
    pub anonymous_reserved_bytes: u64,
    /// Mappings that a process may have.
    pub mappings_max: Option<u64>,
    /// The tightest memory limit of its control groups, and what that group has used.
    pub limit: Option<Limit>,
}

/// A memory limit of a control group.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Limit {
    /// The limit.
    pub limit_bytes: u64,
    /// The memory of all processes of the group, page cache included.
    pub used_bytes: u64,
    /// The group's directory.
    pub group: String,
}

impl Memory {
    pub(super) fn of(pid: i32, sample: ProcessSample, layout: &[Mapping]) -> Self {
        let anonymous = layout.iter().filter(|one| {
            let is_heap = one.is_nameless() || one.name == "[heap]";
            is_heap && one.is_writable && !one.is_shared
        });
        Self {
            sample,
            anonymous_reserved_bytes: anonymous.map(|one| one.end - one.start).sum(),
            mappings_max: mappings_max(),
            limit: limit(pid),
        }
    }
}

/// Of the group and all above it, the one with the least room.
fn limit(pid: i32) -> Option<Limit> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let limits = cgroup::memory_limits_below(Path::new("/"), &groups);
    let limits = limits.into_iter().filter_map(|one| {
        Some(Limit {
            limit_bytes: one.bytes,
            used_bytes: one.used_bytes()?,
            group: one.group.display().to_string(),
        })
    });
    limits.min_by_key(|one| one.limit_bytes.saturating_sub(one.used_bytes))
}

/// As lines of the page.
pub(super) fn findings(memory: &Memory, status: &Status) -> Vec<Finding> {
    let mut all = vec![resident(memory)];
    all.extend(given_back(memory));
    all.push(huge_pages(memory, status));
    all.extend(mappings(memory));
    all.extend(limited(memory));
    all.push(Finding::ok(
        SECTION,
        "threads",
        memory.sample.threads.to_string(),
    ));
    all
}

fn size(bytes: u64) -> String {
    format_bytes(bytes as f64)
}

fn resident(memory: &Memory) -> Finding {
    let sample = &memory.sample;
    let seen = sample.memory;
    let mut found = format!(
        "{} (RSS; at most it was {})",
        size(seen.rss_bytes),
        size(sample.peak_rss_bytes)
    );
    match seen.anonymous_bytes {
        Some(anonymous) => {
            found += &format!(
                ": {} of it without a file (heaps, stacks, data of programs and libraries); {} is mapped for heaps and \
                 stacks; {} belongs to this process alone",
                size(anonymous),
                size(memory.anonymous_reserved_bytes),
                size(seen.uss_bytes.unwrap_or(0)),
            );
        }
        None => found += "; what of it are heaps is not shown",
    }
    if let Some(swapped) = seen.swapped_bytes.filter(|&bytes| bytes > 0) {
        found += &format!("; {} is swapped out besides", size(swapped));
    }
    Finding::ok(SECTION, "resident", found)
}

fn given_back(memory: &Memory) -> Option<Finding> {
    let bytes = memory
        .sample
        .memory
        .lazy_free_bytes
        .filter(|&bytes| bytes > 0)?;
    let found = format!(
        "{} of the RSS is free already (MADV_FREE): the kernel takes it when it needs memory",
        size(bytes)
    );
    Some(Finding::ok(SECTION, "given back", found))
}

fn huge_pages(memory: &Memory, status: &Status) -> Finding {
    let mode =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = bracketed(&mode).unwrap_or("unknown").to_owned();
    let own = match status.thp_enabled {
        Some(false) => ", switched off for this process (prctl)",
        _ => "",
    };
    let held = match memory.sample.memory.huge_page_bytes {
        Some(bytes) => format!("{} in transparent huge pages", size(bytes)),
        None => "how much lies in them is not shown".to_owned(),
    };
    let found = format!("{held}; the machine's mode is {mode}{own}");
    Finding::ok(SECTION, "huge pages", found)
}

fn mappings(memory: &Memory) -> Option<Finding> {
    const NAME: &str = "mappings";
    let (count, most) = memory.sample.mappings.zip(memory.mappings_max)?;
    let share = count as f64 / most.max(1) as f64;
    let found = format!(
        "{count} of {most} that a process may have (vm.max_map_count), {}",
        format_percent(share)
    );
    Some(match share < MAPPINGS_SHARE {
        true => Finding::ok(SECTION, NAME, found),
        false => Finding::weak(
            SECTION,
            NAME,
            format!("{found}: at the limit malloc and mmap fail"),
        )
        .remedy(format!(
            "sysctl -w vm.max_map_count={}",
            most.saturating_mul(4)
        )),
    })
}

fn limited(memory: &Memory) -> Option<Finding> {
    const NAME: &str = "memory limit";
    let limit = memory.limit.as_ref()?;
    let share = limit.used_bytes as f64 / limit.limit_bytes.max(1) as f64;
    let found = format!(
        "{} of {} that its control group may have, page cache and other processes included, {} ({})",
        size(limit.used_bytes),
        size(limit.limit_bytes),
        format_percent(share),
        limit.group
    );
    Some(match share < LIMIT_SHARE {
        true => Finding::ok(SECTION, NAME, found),
        false => Finding::weak(SECTION, NAME, found)
            .remedy("a higher limit, or an allocator that gives memory back sooner: millpond compare --find-limit"),
    })
}
