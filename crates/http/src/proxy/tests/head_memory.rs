use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

proptest! {
    /// Goal: whatever is remembered in any order, what is found is what was last said of the same
    /// bytes and key, and the one remembered last is found unless it is too long.
    #[test]
    fn what_is_found_was_said_of_the_same(
        steps in proptest::collection::vec((0..6_usize, 0..3_u8, 0..2_usize), 0..80),
    ) {
        let heads = ["a", "aa", "the same length: 1\r\n\r\n", "the same length: 2\r\n\r\n"];
        let heads: Vec<String> = heads.iter().map(|&head| head.to_owned()).chain([
            "x".repeat(RECEIVED_BYTES_MAX),
            "x".repeat(RECEIVED_BYTES_MAX + 1),
        ]).collect();
        let mut memory = HeadMemory::<u8, usize>::new();
        let mut said: HashMap<(usize, u8), (String, usize)> = HashMap::new();
        for (number, (head, key, is_long)) in steps.into_iter().enumerate() {
            let received = heads[head].as_bytes();
            let written = format!("{number} {}", "w".repeat(is_long * WRITTEN_BYTES_MAX));
            let salt = u64::from(key);
            memory.remember((received, key, salt), written.as_bytes(), number);
            let is_short = received.len() <= RECEIVED_BYTES_MAX && is_long == 0;
            if is_short {
                said.insert((head, key), (written, number));
                prop_assert!(memory.find(received, |it| *it == key, salt).is_some());
            }
            for (index, head) in heads.iter().enumerate() {
                for key in 0..3 {
                    let found = memory.find(head.as_bytes(), |it| *it == key, u64::from(key));
                    if let Some((written, number)) = found {
                        let expected = said.get(&(index, key));
                        prop_assert_eq!(
                            expected,
                            Some(&(String::from_utf8_lossy(written).into_owned(), number))
                        );
                    }
                }
            }
        }
    }
}
