//! What was found before, good and bad, and for how long it holds. No clock of its own.

use super::{ResolveError, ResolverConfig};
use crate::address::Address;
use std::collections::HashMap;
use std::sync::Arc;

/// Names that are remembered at most; beyond it those go that hold no longer, and then all.
const NAMES_MAX: usize = 4096;

/// An answer and how long it holds from now on.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    pub(super) result: Result<Arc<[Address]>, ResolveError>,
    pub(super) valid_ns: u64,
}

struct Entry {
    result: Result<Arc<[Address]>, ResolveError>,
    until_ns: u64,
    /// When the addresses were looked up.
    found_ns: u64,
}

pub(super) struct Cache {
    config: ResolverConfig,
    entries: HashMap<(String, u16), Entry>,
}

impl Cache {
    pub(super) fn new(config: ResolverConfig) -> Self {
        Self {
            config,
            entries: HashMap::new(),
        }
    }

    /// What is known and holds.
    pub(super) fn get(&self, host: &str, port: u16, now_ns: u64) -> Option<Cached> {
        let entry = self.entries.get(&(host.to_owned(), port))?;
        let valid_ns = entry
            .until_ns
            .checked_sub(now_ns)
            .filter(|left| *left > 0)?;
        Some(Cached {
            result: entry.result.clone(),
            valid_ns,
        })
    }

    /// Remembers what a lookup found; returns what is to be answered: where it found nothing, what
    /// was known before, unless that is too old.
    pub(super) fn put(
        &mut self,
        host: &str,
        port: u16,
        found: Result<Arc<[Address]>, ResolveError>,
        now_ns: u64,
    ) -> Cached {
        let key = (host.to_owned(), port);
        let (result, valid_ns, found_ns) = match found {
            Ok(addresses) => (Ok(addresses), self.config.good_ns, now_ns),
            Err(error) => match self.entries.get(&key) {
                Some(entry) if entry.result.is_ok() && self.is_usable(entry, now_ns) => {
                    (entry.result.clone(), self.config.bad_ns, entry.found_ns)
                }
                _ => (Err(error), self.config.bad_ns, now_ns),
            },
        };
        if self.entries.len() >= NAMES_MAX && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| entry.until_ns > now_ns);
            if self.entries.len() >= NAMES_MAX {
                self.entries.clear();
            }
        }
        let entry = Entry {
            result: result.clone(),
            until_ns: now_ns.saturating_add(valid_ns),
            found_ns,
        };
        self.entries.insert(key, entry);
        Cached { result, valid_ns }
    }

    /// Whether old addresses may stand in for new ones.
    fn is_usable(&self, entry: &Entry, now_ns: u64) -> bool {
        let serves_ns = self.config.good_ns.saturating_add(self.config.stale_ns);
        now_ns < entry.found_ns.saturating_add(serves_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: ResolverConfig = ResolverConfig {
        good_ns: 100,
        bad_ns: 10,
        stale_ns: 1000,
        threads: 1,
    };

    fn good(port: u16) -> Result<Arc<[Address]>, ResolveError> {
        Ok(Arc::new([Address::Inet(([127, 0, 0, 1], port).into())]))
    }

    fn bad() -> Result<Arc<[Address]>, ResolveError> {
        Err(ResolveError::Unknown {
            name: "a".to_owned(),
            reason: "gone".into(),
        })
    }

    /// Goal: each kind of answer holds for its own time and no longer.
    #[test]
    fn answers_hold_for_their_time() {
        let mut cache = Cache::new(CONFIG);
        assert!(cache.get("a", 1, 0).is_none());
        assert_eq!(cache.put("a", 1, good(1), 0).valid_ns, 100);
        let half = cache.get("a", 1, 50).unwrap();
        assert_eq!((half.result, half.valid_ns), (good(1), 50));
        assert!(
            cache.get("a", 2, 50).is_none(),
            "another port is another name"
        );
        assert!(cache.get("a", 1, 100).is_none());
        assert_eq!(cache.put("b", 1, bad(), 0).result, bad());
        assert_eq!(cache.get("b", 1, 9).unwrap().result, bad());
        assert!(cache.get("b", 1, 10).is_none());
    }

    /// Goal: old addresses serve while lookups fail, looked up again each short while, until they are
    /// too old; and a good lookup ends that at once.
    #[test]
    fn stale_addresses_stand_in_for_a_failure() {
        let mut cache = Cache::new(CONFIG);
        cache.put("a", 1, good(1), 0);
        let stale = cache.put("a", 1, bad(), 150);
        assert_eq!((stale.result, stale.valid_ns), (good(1), 10));
        assert!(cache.get("a", 1, 160).is_none());
        assert_eq!(cache.put("a", 1, bad(), 1099).result, good(1));
        assert_eq!(cache.put("a", 1, bad(), 1110).result, bad(), "too old");
        assert_eq!(cache.put("a", 1, good(2), 1200).result, good(2));
        assert_eq!(cache.put("a", 1, bad(), 1310).result, good(2), "the newer");
    }

    /// Goal: names without end take memory with an end.
    #[test]
    fn names_are_forgotten_when_there_are_too_many() {
        let mut cache = Cache::new(CONFIG);
        for name in 0..3 * NAMES_MAX {
            cache.put(&name.to_string(), 1, good(1), 0);
            assert!(cache.entries.len() <= NAMES_MAX);
        }
    }
}
