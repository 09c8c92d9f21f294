use super::*;
use proptest::prelude::*;

fn any_inventory() -> impl Strategy<Value = Inventory> {
    let numbers = (
        any::<bool>(),
        any::<bool>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
    );
    let logs = prop::collection::vec(any::<u64>(), 0..LOGS_MAX);
    (numbers, logs).prop_map(
        |((is_stopped, syncs_always, sequence, accepted_loss, size), logs)| Inventory {
            state: if is_stopped {
                NoteState::Stopped
            } else {
                NoteState::Running
            },
            syncs_always,
            sequence,
            clock_us: size,
            accepted_loss,
            manifest: Noted {
                name: format!("MANIFEST-{sequence:06}"),
                size_bytes: size,
            },
            logs: logs
                .into_iter()
                .map(|size_bytes| Noted {
                    name: format!("{size_bytes:06}.log"),
                    size_bytes,
                })
                .collect(),
        },
    )
}

proptest! {
    /// Goal: a written note is read back, whatever the file held before.
    #[test]
    fn notes_round_trip(first in any_inventory(), second in any_inventory()) {
        let data = tempfile::tempdir().unwrap();
        prop_assert_eq!(read(data.path()).unwrap(), Found::Missing);
        let writer = NoteWriter::open(data.path()).unwrap();
        for inventory in [first, second] {
            writer.write(&inventory, Reach::Disk).unwrap();
            prop_assert_eq!(read(data.path()).unwrap(), Found::Valid(inventory));
        }
    }

    /// Goal: a note with a flipped bit, or that ends early, is never taken for another.
    #[test]
    fn damaged_notes_are_none(inventory in any_inventory(), place in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let text = inventory.text();
        prop_assert_eq!(Inventory::parse(&text), Some(inventory.clone()));
        let at = place.index(text.len());
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1 << bit;
        if let Ok(flipped) = String::from_utf8(bytes)
            && let Some(found) = Inventory::parse(&flipped)
        {
            prop_assert_eq!(found, inventory.clone());
        }
        if let Some(found) = Inventory::parse(&text[..at]) {
            prop_assert_eq!(found, inventory);
        }
    }
}
