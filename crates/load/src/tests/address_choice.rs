use super::*;

/// Goal: connections take the addresses in turn; each tries all of them once before it has failed; and those of an
/// address that refuses spread over the others.
#[test]
fn every_address_has_its_turn() {
    for count in 1..=5 {
        for place in 0..40 {
            let mut choice = AddressChoice::default();
            assert_eq!(choice.index(place, count), place % count);
            for _ in 0..2 {
                let mut tried = vec![choice.index(place, count)];
                while choice.failed(count) {
                    tried.push(choice.index(place, count));
                }
                tried.sort_unstable();
                assert_eq!(tried, (0..count).collect::<Vec<_>>(), "{place} of {count}");
            }
        }
    }
    let mut uses = [0; 4];
    for place in 0..36 {
        let mut choice = AddressChoice::default();
        while choice.index(place, 4) == 0 {
            assert!(choice.failed(4));
        }
        choice.succeeded();
        uses[choice.index(place, 4)] += 1;
    }
    assert_eq!(uses, [0, 12, 12, 12]);
}
