//! Why a counter is missing, and the lines that say what stands in for it.

use std::io;

use rustix::io::Errno;

use super::CounterKind;

/// Why a counter is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Missing {
    /// The kernel shows no such counter: a virtual machine without a PMU, or an odd processor.
    NoPmu,
    /// `perf_event_paranoid`, or a container's filter.
    NoPermission,
    /// Anything else, by its number; `EIO` if it has none.
    Other(i32),
}

impl Missing {
    pub(super) fn of(error: &io::Error) -> Self {
        // Not every error is the system's: what stands in a file may be no number.
        let Some(errno) = Errno::from_io_error(error) else {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::Unsupported => Self::NoPmu,
                io::ErrorKind::PermissionDenied => Self::NoPermission,
                _ => Self::Other(Errno::IO.raw_os_error()),
            };
        };
        match errno {
            Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::INVAL => Self::NoPmu,
            Errno::ACCESS | Errno::PERM | Errno::NOSYS => Self::NoPermission,
            other => Self::Other(other.raw_os_error()),
        }
    }
}

/// One line for each group of counters that is missing; one line in all if none is.
pub(super) fn lines(missing: &[(CounterKind, Missing)]) -> Vec<String> {
    let why = |kind: CounterKind| {
        let found = missing.iter().find(|(other, _)| *other == kind);
        found.map(|(_, why)| *why)
    };
    let mut lines = vec![core_line(&why)];
    if why(CounterKind::UserInstructions).is_none() {
        lines.extend(explaining_line(&why));
    }
    lines.extend(software_line(&why));
    lines
}

fn core_line(why: &dyn Fn(CounterKind) -> Option<Missing>) -> String {
    let stand_in = "CPU time per request stands in for instructions";
    match why(CounterKind::UserInstructions) {
        None if why(CounterKind::KernelCycles)
            .or(why(CounterKind::KernelInstructions))
            .is_some() =>
        {
            "instructions and cycles are counted in user mode only; for the kernel's share run as \
             root or lower kernel.perf_event_paranoid to 1"
                .to_owned()
        }
        None => "instructions and cycles are counted, in user mode and in the kernel".to_owned(),
        Some(Missing::NoPmu) => format!(
            "this machine shows no hardware counters (common in virtual machines): {stand_in}, and \
             what caches, TLB and branches cost is not known"
        ),
        Some(Missing::NoPermission) => format!(
            "hardware counters are forbidden here: {stand_in}; run as root or set \
             kernel.perf_event_paranoid to 1"
        ),
        Some(Missing::Other(number)) => format!(
            "hardware counters failed ({}): {stand_in}",
            io::Error::from_raw_os_error(number)
        ),
    }
}

/// Of those that explain where cycles go; `None` if all are there.
fn explaining_line(why: &dyn Fn(CounterKind) -> Option<Missing>) -> Option<String> {
    let mut lost: Vec<&str> = [CounterKind::BranchMisses, CounterKind::DtlbMisses]
        .into_iter()
        .filter(|&kind| why(kind).is_some())
        .map(CounterKind::label)
        .collect();
    let has_caches =
        why(CounterKind::L1dMisses).is_none() || why(CounterKind::CacheMisses).is_none();
    if !has_caches {
        lost.push(CounterKind::CacheMisses.label());
    }
    (!lost.is_empty()).then(|| {
        format!(
            "this processor does not count {}: their part in a difference is not known",
            lost.join(", ")
        )
    })
}

/// Of the kernel's own counts, for which `/proc` stands in; `None` if all are there.
fn software_line(why: &dyn Fn(CounterKind) -> Option<Missing>) -> Option<String> {
    let clock = why(CounterKind::TaskClock)?;
    let reason = match clock {
        Missing::NoPermission => {
            "perf_event_open is forbidden (kernel.perf_event_paranoid, or a container's filter)"
                .to_owned()
        }
        Missing::NoPmu => "this kernel has no software counters".to_owned(),
        Missing::Other(number) => format!(
            "software counters failed ({})",
            io::Error::from_raw_os_error(number)
        ),
    };
    Some(format!(
        "{reason}: CPU time, faults, switches and migrations come from /proc, CPU time to 10 ms"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(missing: Missing) -> Vec<(CounterKind, Missing)> {
        CounterKind::ALL.map(|kind| (kind, missing)).to_vec()
    }

    fn some(kinds: &[CounterKind], missing: Missing) -> Vec<(CounterKind, Missing)> {
        kinds.iter().map(|&kind| (kind, missing)).collect()
    }

    /// Goal: with everything there is one line, and it claims no more than that.
    #[test]
    fn nothing_missing_is_one_line() {
        let lines = lines(&[]);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("in user mode and in the kernel"));
    }

    /// Goal: every cause of missing counters is told apart, one line each, and the line says what
    /// stands in or what to do.
    #[test]
    fn every_cause_has_its_line() {
        let hardware: Vec<CounterKind> = CounterKind::ALL
            .into_iter()
            .filter(|kind| kind.is_hardware())
            .collect();
        let no_pmu = lines(&some(&hardware, Missing::NoPmu));
        assert_eq!(no_pmu.len(), 1, "{no_pmu:?}");
        assert!(no_pmu[0].contains("virtual machines") && no_pmu[0].contains("stands in"));
        let forbidden = lines(&all(Missing::NoPermission));
        assert_eq!(forbidden.len(), 2, "{forbidden:?}");
        assert!(forbidden[0].contains("kernel.perf_event_paranoid to 1"));
        assert!(forbidden[1].contains("/proc"));
        let failed = lines(&all(Missing::Other(24)));
        assert!(
            failed
                .iter()
                .all(|line| line.contains("Too many open files"))
        );
        let kernel = [CounterKind::KernelInstructions, CounterKind::KernelCycles];
        let user_only = lines(&some(&kernel, Missing::NoPermission));
        assert_eq!(user_only.len(), 1);
        assert!(user_only[0].contains("user mode only"));
        let odd = lines(&some(&[CounterKind::DtlbMisses], Missing::NoPmu));
        assert_eq!(odd.len(), 2);
        assert!(odd[1].contains("does not count dTLB misses:"), "{odd:?}");
    }

    /// Goal: misses of either cache are enough.
    #[test]
    fn one_cache_stands_for_the_other() {
        assert_eq!(
            lines(&some(&[CounterKind::L1dMisses], Missing::NoPmu)).len(),
            1
        );
        assert_eq!(
            lines(&some(&[CounterKind::CacheMisses], Missing::NoPmu)).len(),
            1
        );
        let both = [CounterKind::L1dMisses, CounterKind::CacheMisses];
        assert!(lines(&some(&both, Missing::NoPmu))[1].contains("cache misses"));
    }

    #[test]
    fn errors_are_sorted_by_what_helps() {
        for (errno, missing) in [
            (2, Missing::NoPmu),
            (95, Missing::NoPmu),
            (13, Missing::NoPermission),
            (1, Missing::NoPermission),
            (38, Missing::NoPermission),
            (24, Missing::Other(24)),
        ] {
            assert_eq!(Missing::of(&io::Error::from_raw_os_error(errno)), missing);
        }
        // Errors without a number of the system's.
        for (kind, missing) in [
            (io::ErrorKind::PermissionDenied, Missing::NoPermission),
            (io::ErrorKind::NotFound, Missing::NoPmu),
            (io::ErrorKind::Other, Missing::Other(5)),
        ] {
            assert_eq!(Missing::of(&io::Error::new(kind, "of a file")), missing);
        }
        assert_eq!(
            Missing::of(&io::Error::from_raw_os_error(0)),
            Missing::Other(5)
        );
    }
}
