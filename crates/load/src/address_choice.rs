//! Which of the target's addresses a connection uses: in turn over the connections, and another where one refuses.

/// One connection's place among the addresses. It stays with an address that took it, and tries each of the others
/// before its attempt counts as failed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct AddressChoice {
    /// How many addresses it has moved on by, below their number.
    moves: usize,
    /// Addresses tried since the last that took it.
    tried: usize,
}

impl AddressChoice {
    /// Which of `count` addresses the connection at `place` uses. Connections whose address refuses spread over all
    /// others.
    pub(crate) const fn index(self, place: usize, count: usize) -> usize {
        let first = place % count;
        if self.moves == 0 || count < 2 {
            return first;
        }
        let step = (place / count + self.moves - 1) % (count - 1) + 1;
        (first + step) % count
    }

    /// The address took the connection.
    pub(crate) const fn succeeded(&mut self) {
        self.tried = 0;
    }

    /// The address did not. True: there is another that has not been tried.
    pub(crate) const fn failed(&mut self, count: usize) -> bool {
        self.moves = (self.moves + 1) % count;
        self.tried = (self.tried + 1) % count;
        self.tried > 0
    }
}

#[cfg(test)]
mod tests {
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
}
