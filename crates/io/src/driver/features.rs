//! The kernel features a driver uses, as a value that can be printed and stored.

use std::fmt;

/// One ability of a kernel interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum DriverFeature {
    /// One submission receives message after message.
    MultishotReceive,
    /// The kernel picks the buffer when bytes arrive.
    BufferRing,
    /// It packs several receives into one buffer.
    IncrementalBuffers,
    /// A send that went well is not reported.
    SkipSuccess,
    /// Completions are worked out when the shard waits, not in the middle of its work.
    DeferredTaskRun,
    /// The kernel may rely on a single submitting thread.
    SingleIssuer,
    /// The ring is registered, which saves a descriptor lookup.
    RegisteredRing,
    /// Submissions are read in place.
    NoSubmissionArray,
    /// Waits take a point in time instead of a duration.
    AbsoluteTimeouts,
    /// The kernel sets a flag in memory when it has work, so that polling costs no system call.
    TaskRunFlag,
}

impl DriverFeature {
    /// All there are.
    pub const ALL: [Self; 10] = [
        Self::MultishotReceive,
        Self::BufferRing,
        Self::IncrementalBuffers,
        Self::SkipSuccess,
        Self::DeferredTaskRun,
        Self::SingleIssuer,
        Self::RegisteredRing,
        Self::NoSubmissionArray,
        Self::AbsoluteTimeouts,
        Self::TaskRunFlag,
    ];

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MultishotReceive => "multishot-receive",
            Self::BufferRing => "buffer-ring",
            Self::IncrementalBuffers => "incremental-buffers",
            Self::SkipSuccess => "skip-success",
            Self::DeferredTaskRun => "deferred-task-run",
            Self::SingleIssuer => "single-issuer",
            Self::RegisteredRing => "registered-ring",
            Self::NoSubmissionArray => "no-submission-array",
            Self::AbsoluteTimeouts => "absolute-timeouts",
            Self::TaskRunFlag => "task-run-flag",
        }
    }
}

/// A set of [`DriverFeature`]s; prints as their names with commas, or `none`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DriverFeatures {
    bits: u16,
}

impl DriverFeatures {
    /// Whether `feature` is in it.
    #[inline]
    #[must_use]
    pub const fn has(self, feature: DriverFeature) -> bool {
        self.bits & 1 << feature as u8 != 0
    }

    /// The set with `feature`.
    #[must_use]
    pub const fn with(self, feature: DriverFeature) -> Self {
        Self {
            bits: self.bits | 1 << feature as u8,
        }
    }

    /// The set without `feature`.
    #[must_use]
    pub const fn without(self, feature: DriverFeature) -> Self {
        Self {
            bits: self.bits & !(1 << feature as u8),
        }
    }

    /// The features of the set.
    pub fn iter(self) -> impl Iterator<Item = DriverFeature> {
        DriverFeature::ALL
            .into_iter()
            .filter(move |feature| self.has(*feature))
    }
}

impl fmt::Display for DriverFeatures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return formatter.write_str("none");
        }
        for (position, feature) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(formatter, "{comma}{}", feature.name())?;
        }
        Ok(())
    }
}

/// Goal: sets hold what was put in, and print it in a fixed order.
#[test]
fn a_set_prints_what_it_holds() {
    let set = DriverFeatures::default();
    assert_eq!(set.to_string(), "none");
    let set = set
        .with(DriverFeature::SkipSuccess)
        .with(DriverFeature::BufferRing);
    assert_eq!(set.to_string(), "buffer-ring,skip-success");
    assert!(set.has(DriverFeature::BufferRing) && !set.has(DriverFeature::MultishotReceive));
    assert_eq!(
        set.without(DriverFeature::BufferRing).to_string(),
        "skip-success"
    );
    let all = DriverFeature::ALL
        .into_iter()
        .fold(set, DriverFeatures::with);
    assert_eq!(all.iter().collect::<Vec<_>>(), DriverFeature::ALL);
}
