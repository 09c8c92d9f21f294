//! Names of upstreams and mirrors: looked up from the start on, and told when they have no address.
//!
//! Each shard looks names up for itself, before any request needs them and again and again; what it finds
//! is told to the control that all shards share, which writes a line when it is news.

use super::service::Proxy;
use crate::client::Client;
use crate::log::{self, LogLevel};
use millpond_io::connection_pool::{AcquireError, Place, PoolKey};
use std::sync::{Mutex, PoisonError};

/// From one look to the next: addresses hold for 30 s, and that there are none holds for 1 s.
const RESOLVED_CHECK_NS: u64 = 30_000_000_000;
const UNRESOLVED_CHECK_NS: u64 = 2_000_000_000;

/// What one shard has found of one name.
#[derive(Debug)]
pub(super) struct NameWatch {
    key: PoolKey,
    is_name: bool,
    is_unresolved: bool,
}

impl NameWatch {
    pub(super) fn new(key: PoolKey, place: &Place) -> Self {
        Self {
            key,
            is_name: matches!(place, Place::Name { .. }),
            is_unresolved: false,
        }
    }

    /// Whether it is news, and why it has no address now.
    fn look(&mut self, client: &Client) -> Option<Option<AcquireError>> {
        if !self.is_name {
            return None;
        }
        let why = client.why_unresolved(self.key);
        let was_unresolved = std::mem::replace(&mut self.is_unresolved, why.is_some());
        (was_unresolved != why.is_some()).then_some(why)
    }
}

/// Names without an address, as some shard has found them.
#[derive(Debug, Default)]
pub(super) struct NameStates {
    unresolved: Mutex<Vec<String>>,
}

impl NameStates {
    /// True: no shard has said so before.
    fn is_news(&self, name: &str, is_unresolved: bool) -> bool {
        let mut unresolved = self
            .unresolved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = unresolved.iter().position(|known| known == name);
        match (known, is_unresolved) {
            (None, true) => unresolved.push(name.to_owned()),
            (Some(index), false) => drop(unresolved.swap_remove(index)),
            _ => return false,
        }
        true
    }
}

impl Proxy {
    /// Has names looked up that are due, and plans the next time.
    pub(super) fn check_names(&mut self, now_ns: u64) {
        let all = self.upstreams.names().chain(self.mirrors.names());
        let mut names = all.map(|(_, name)| name).filter(|it| it.is_name).peekable();
        if names.peek().is_none() {
            return;
        }
        if now_ns >= self.names_due_ns {
            let mut next_ns = RESOLVED_CHECK_NS;
            for name in names {
                self.client.resolve_target(name.key);
                if name.is_unresolved {
                    next_ns = UNRESOLVED_CHECK_NS;
                }
            }
            self.names_due_ns = now_ns.saturating_add(next_ns);
        }
        self.client.alarm_at(self.names_due_ns);
    }

    /// Tells what has been found since the last time.
    pub(super) fn tell_names(&mut self) {
        let Self {
            upstreams,
            mirrors,
            client,
            control,
            names_due_ns,
            ..
        } = self;
        let upstreams = upstreams.names().map(|it| ("upstream", it));
        let mirrors = mirrors.names().map(|it| ("mirror", it));
        for (kind, (name, watch)) in upstreams.chain(mirrors) {
            let Some(why) = watch.look(client) else {
                continue;
            };
            if why.is_some() {
                // Sooner than it was planned.
                *names_due_ns = 0;
            }
            if control.names.is_news(name, why.is_some()) {
                tell(kind, name, why.as_ref());
            }
        }
        if self.names_due_ns == 0 {
            let soon_ns = millpond_io::monotonic_ns().saturating_add(UNRESOLVED_CHECK_NS);
            self.names_due_ns = soon_ns;
            self.client.alarm_at(soon_ns);
        }
    }
}

#[cold]
fn tell(kind: &str, name: &str, why: Option<&AcquireError>) {
    match why {
        Some(why) => log::write_event(
            LogLevel::Warn,
            "name_unresolved",
            1,
            format_args!("{kind} {name}: {why}; it is looked up again every 2 s"),
        ),
        None => log::write_event(
            LogLevel::Info,
            "name_resolved",
            1,
            format_args!("{kind} {name}: its name has an address"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what several shards find is news once, each time that it changes.
    #[test]
    fn shards_tell_it_once() {
        let states = NameStates::default();
        assert!(
            !states.is_news("a", false),
            "a name that has an address is no news"
        );
        for _ in 0..2 {
            assert!(states.is_news("a", true));
            assert!(!states.is_news("a", true));
            assert!(states.is_news("b", true));
            assert!(states.is_news("a", false));
            assert!(!states.is_news("a", false));
            assert!(states.is_news("b", false));
        }
    }
}
