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
