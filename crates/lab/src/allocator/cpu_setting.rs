//! The setting of an allocator that follows from the number of CPUs, and its value on another machine.

use super::known::Dialect;
use super::{Allocator, GLIBC, known, tuning};

/// Arenas that glibc's malloc may make for each CPU on 64 bit.
const GLIBC_ARENAS_PER_CPU: u32 = 8;
/// Arenas that jemalloc makes for each CPU, where there are several.
const JEMALLOC_ARENAS_PER_CPU: u32 = 4;

/// A setting with the value that it would have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CpuSetting {
    /// `arena_max`.
    pub(crate) key: &'static str,
    pub(crate) value: String,
    /// The variables that the allocator reads it from.
    pub(crate) read_from: Vec<&'static str>,
}

impl Allocator {
    /// What it derives from the number of CPUs, as `cpus` of them would have it. `None` if nothing, or if its
    /// variables are ones that no rule is known for.
    pub(crate) fn setting_for_cpus(&self, cpus: u32) -> Option<CpuSetting> {
        let has_unknown = self.settings.is_empty() && !self.environment.is_empty();
        let (key, arenas, read_from) = match self.dialect()? {
            _ if has_unknown => return None,
            Dialect::Glibc => (
                "arena_max",
                cpus.saturating_mul(GLIBC_ARENAS_PER_CPU),
                vec!["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"],
            ),
            Dialect::Jemalloc(variable) => (
                "narenas",
                match cpus {
                    0 | 1 => 1,
                    _ => cpus.saturating_mul(JEMALLOC_ARENAS_PER_CPU),
                },
                vec![variable],
            ),
            _ => return None,
        };
        Some(CpuSetting {
            key,
            value: arenas.to_string(),
            read_from,
        })
    }

    /// Adds `setting` to the settings that the user gave it; its name stays.
    pub(crate) fn add_cpu_setting(&mut self, setting: &CpuSetting) {
        let Some(dialect) = self.dialect() else {
            return;
        };
        let own = (setting.key.to_owned(), setting.value.clone());
        let all: Vec<tuning::Setting> = self.settings.iter().cloned().chain([own]).collect();
        self.environment = tuning::environment(dialect, &all);
    }

    /// How it reads its settings: without a library, as the C library does.
    fn dialect(&self) -> Option<Dialect> {
        let name = match self.library {
            Some(_) => self.family?,
            None => GLIBC,
        };
        known::find(name).map(|known| known.dialect)
    }
}
