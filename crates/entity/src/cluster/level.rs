//! How many acknowledgements there are words for.
//!
//! On the path: a job's number of acknowledgements (`replicas`) picks the statement that asks for them.
//! CQL has words for one, two, three, a quorum and all. What lies between is asked of all: that is more
//! than was wanted, never less.
//! Absent on purpose: data centres. A quorum is one of all copies, wherever they are.

use scylla::statement::Consistency;

use crate::replicas::quorum;

/// A word of CQL for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Level {
    One,
    Two,
    Three,
    Quorum,
    All,
}

impl Level {
    /// In the order of their numbers.
    pub(super) const ALL: [Self; 5] = [Self::One, Self::Two, Self::Three, Self::Quorum, Self::All];

    /// At which `acks` of `kept` copies have answered.
    pub(super) fn of(acks: u16, kept: u16) -> Self {
        match acks {
            // First, so that it stays right where the keyspace gets more copies meanwhile.
            _ if acks == quorum(kept) && kept > 1 => Self::Quorum,
            1 => Self::One,
            _ if acks == kept => Self::All,
            2 => Self::Two,
            3 => Self::Three,
            _ => Self::All,
        }
    }

    pub(super) fn consistency(self) -> Consistency {
        match self {
            Self::One => Consistency::One,
            Self::Two => Consistency::Two,
            Self::Three => Consistency::Three,
            Self::Quorum => Consistency::Quorum,
            Self::All => Consistency::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(level: Level, kept: u16) -> u16 {
        match level {
            Level::One => 1,
            Level::Two => 2,
            Level::Three => 3,
            Level::Quorum => quorum(kept),
            Level::All => kept,
        }
    }

    /// Goal: never fewer copies are waited for than were asked for, and as many where there is a word.
    #[test]
    fn no_level_waits_for_fewer() {
        for kept in 1..=9 {
            for acks in 1..=kept {
                let level = Level::of(acks, kept);
                assert!(needed(level, kept) >= acks, "{acks}/{kept}: {level:?}");
                if acks <= 3 || acks == kept || acks == quorum(kept) {
                    assert_eq!(needed(level, kept), acks, "{acks}/{kept}: {level:?}");
                }
            }
        }
        assert_eq!(Level::of(1, 1), Level::One);
        assert_eq!(Level::of(2, 3), Level::Quorum);
        assert_eq!(Level::of(3, 3), Level::All);
        assert_eq!(Level::of(1, 3), Level::One);
        assert_eq!(Level::of(4, 5), Level::All);
        assert_eq!(Level::of(4, 7), Level::Quorum);
    }

    /// Goal: a level finds its own statement.
    #[test]
    fn levels_are_numbered_in_their_order() {
        for (index, level) in Level::ALL.into_iter().enumerate() {
            assert_eq!(level as usize, index);
        }
    }
}
