//! The machine a measurement was made on, as far as it changes the numbers.
//!
//! `lab` captures it once at the start; it is part of every record. Unreadable values are left out:
//! a container that hides `/sys` must not stop a measurement.

use std::fs;

use serde::{Deserialize, Serialize};

const VIRTUAL_MACHINE: &str = "virtual machine";

/// Variables of the shell that change what an allocator does.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InheritedVariables {
    /// Settings of allocators and what was preloaded, as `NAME=VALUE`.
    pub allocator: Vec<String>,
    /// Whether every candidate ran with them; else none did.
    pub kept: bool,
    /// Switches of a runtime's own heap (`PYTHONMALLOC`), as `NAME=VALUE`; every candidate ran with them.
    pub runtime: Vec<String>,
}

impl InheritedVariables {
    /// One line: what there was, and what ran with it. `None` if there was nothing.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.allocator.is_empty() {
            let list = self.allocator.join(" ");
            parts.push(match self.kept {
                true => format!("{list} (part of every candidate)"),
                false => format!("{list} (dropped)"),
            });
        }
        if !self.runtime.is_empty() {
            let list = self.runtime.join(" ");
            parts.push(format!("{list} (part of every candidate)"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The known facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Kernel release.
    pub kernel: String,
    /// Distribution.
    pub distribution: Option<String>,
    /// Machine architecture.
    pub architecture: String,
    /// Processor model.
    pub cpu_model: Option<String>,
    /// Processors this process may use.
    pub cpus: u32,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// Frequency governor of the first processor; `None` if the kernel has none (most VMs).
    pub governor: Option<String>,
    /// Whether turbo frequencies are allowed.
    pub turbo: Option<bool>,
    /// Whether idle processors were kept from sleeping; `None`: unknown.
    pub idle_cpus_awake: Option<bool>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// Address space randomisation: 0, 1 or 2.
    pub address_randomisation: Option<u32>,
    /// The hypervisor or container this runs in, as far as visible.
    pub virtualisation: Option<String>,
    /// Which users may use performance counters.
    pub perf_event_paranoid: Option<i32>,
    /// Load average over one minute when the measurement began.
    pub load_average: Option<f64>,
    /// Mappings that the kernel allows a process (`vm.max_map_count`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings_max: Option<u64>,
    /// Size of a page of memory.
    pub page_bytes: Option<u64>,
    /// The C library whose malloc is the baseline, and its version; `None`: unknown.
    pub c_library: Option<String>,
    /// Variables of the shell that change allocators; `None`: not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited_variables: Option<InheritedVariables>,
}

impl Environment {
    /// Reads what can be read; never fails.
    #[must_use]
    pub fn capture() -> Self {
        let cpu_info = read("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            distribution: read("/etc/os-release")
                .and_then(|text| value_of(&text, "PRETTY_NAME", '='))
                .map(|name| name.trim_matches('"').to_owned()),
            architecture: std::env::consts::ARCH.to_owned(),
            cpu_model: value_of(&cpu_info, "model name", ':'),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            memory_bytes: read("/proc/meminfo").and_then(|text| memory_total(&text)),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            turbo: read("/sys/devices/system/cpu/intel_pstate/no_turbo")
                .map(|text| text == "0")
                .or_else(|| read("/sys/devices/system/cpu/cpufreq/boost").map(|text| text == "1")),
            idle_cpus_awake: None,
            transparent_huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| bracketed(&text).map(str::to_owned)),
            address_randomisation: read("/proc/sys/kernel/randomize_va_space")
                .and_then(|text| text.parse().ok()),
            virtualisation: virtualisation(&cpu_info),
            perf_event_paranoid: read("/proc/sys/kernel/perf_event_paranoid")
                .and_then(|text| text.parse().ok()),
            load_average: read("/proc/loadavg")
                .and_then(|text| text.split(' ').next()?.parse().ok()),
            mappings_max: mappings_max(),
            page_bytes: Some(rustix::param::page_size() as u64),
            c_library: None,
            inherited_variables: None,
        }
    }

    /// `4 KiB`, if it is known.
    #[must_use]
    pub fn page_size(&self) -> Option<String> {
        self.page_bytes.map(|bytes| format!("{} KiB", bytes / 1024))
    }

    /// Whether this is a virtual machine, as far as visible.
    #[must_use]
    pub fn is_virtual_machine(&self) -> bool {
        let seen = self.virtualisation.as_ref();
        seen.is_some_and(|text| text.contains(VIRTUAL_MACHINE))
    }

    /// The lines of the report's environment table: name and value.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let unknown = || "unknown".to_owned();
        let text = |value: &Option<String>| value.clone().unwrap_or_else(unknown);
        let mut lines = vec![
            (
                "kernel",
                format!("Linux {} {}", self.kernel, self.architecture),
            ),
            ("distribution", text(&self.distribution)),
            (
                "processor",
                format!("{} x {}", self.cpus, text(&self.cpu_model)),
            ),
            (
                "memory",
                self.memory_bytes
                    .map_or_else(unknown, |bytes| crate::units::format_bytes(bytes as f64)),
            ),
            (
                "virtualisation",
                self.virtualisation
                    .clone()
                    .unwrap_or_else(|| "none seen".into()),
            ),
            (
                "frequency governor",
                self.governor
                    .clone()
                    .unwrap_or_else(|| "not under our control".into()),
            ),
            ("transparent huge pages", text(&self.transparent_huge_pages)),
        ];
        lines.extend(self.page_size().map(|size| ("page size", size)));
        if let Some(version) = &self.c_library {
            lines.push(("C library", version.clone()));
        }
        let inherited = self.inherited_variables.as_ref();
        if let Some(found) = inherited.and_then(InheritedVariables::describe) {
            lines.push(("allocator variables of the shell", found));
        }
        if let Some(awake) = self.idle_cpus_awake {
            let state = match awake {
                true => "kept awake",
                false => "sleep as the system has it",
            };
            lines.push(("idle processors", state.to_owned()));
        }
        if let Some(turbo) = self.turbo {
            lines.push(("turbo", if turbo { "on" } else { "off" }.to_owned()));
        }
        if let Some(level) = self.address_randomisation {
            lines.push(("address randomisation", level.to_string()));
        }
        if let Some(load) = self.load_average {
            lines.push(("load average at start", format!("{load:.2}")));
        }
        lines
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

/// The value after `key` and `separator` on the first line that starts with the key.
fn value_of(text: &str, key: &str, separator: char) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

fn memory_total(meminfo: &str) -> Option<u64> {
    let text = value_of(meminfo, "MemTotal", ':')?;
    Some(text.strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The choice in force in a file of the kernel's: `madvise` of `always [madvise] never`.
#[must_use]
pub fn bracketed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

/// A process with this part of [`mappings_max`] is near it.
pub const MAPPINGS_SHARE: f64 = 0.5;

/// Mappings that the kernel allows a process (`vm.max_map_count`).
#[must_use]
pub fn mappings_max() -> Option<u64> {
    read("/proc/sys/vm/max_map_count")?.parse().ok()
}

fn virtualisation(cpu_info: &str) -> Option<String> {
    let flags = value_of(cpu_info, "flags", ':').unwrap_or_default();
    let vendor = read("/sys/class/dmi/id/sys_vendor");
    let machine = flags
        .split(' ')
        .any(|flag| flag == "hypervisor")
        .then(|| match vendor {
            Some(vendor) => format!("{VIRTUAL_MACHINE} ({vendor})"),
            None => VIRTUAL_MACHINE.to_owned(),
        });
    let container = (fs::exists("/.dockerenv").unwrap_or(false)
        || fs::exists("/run/.containerenv").unwrap_or(false))
    .then(|| "container".to_owned());
    match (machine, container) {
        (Some(machine), Some(container)) => Some(format!("{container} in a {machine}")),
        (machine, container) => machine.or(container),
    }
}

#[cfg(test)]
#[path = "tests/environment.rs"]
mod tests;
