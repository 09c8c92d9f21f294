//! From host names to addresses, away from the shards.
//!
//! A shard's connection pool asks through its [`ResolverClient`]; helper threads resolve the name (getaddrinfo, which
//! blocks) unless it is in the cache; the response comes back through a bounded mailbox and the shard's waker.
//!
//! ```text
//! ResolverClient::ask -> bounded queue -> helper thread: cache, else getaddrinfo -> order, cache
//!         next_answer <- mailbox + waker <-----------------------------------------------+
//! ```
//!
//! A good response holds for `good_ns`, a bad one for `bad_ns`; where a lookup fails, the last good response serves for
//! up to `stale_ns` more. getaddrinfo has no time to live: `good_ns` replaces it.
//!
//! The system's uses `/etc/hosts`, search domains and other settings of the administrator.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Instant;
use std::{fmt, io, panic};

use crate::address::Address;
use crate::mailbox::{Mailbox, MailboxSender};
use crate::waker::Waker;

/// Questions that wait for a helper thread, of all shards together.
const QUESTIONS_MAX: usize = 1024;
/// Responses that wait for one shard. A pool has at most one question for each key.
const ANSWERS_MAX: usize = 1024;
/// Addresses of one name that are used.
const ADDRESSES_MAX: usize = 16;

/// How long it holds that a lookup panicked.
const PANICKED_VALID_NS: u64 = 1_000_000_000;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// How often a lookup has panicked in this process. The request gets [`ResolveError::Panicked`], and the thread goes
/// on.
#[must_use]
pub fn panic_count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// How a resolver works.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ResolverConfig {
    /// How long addresses hold.
    pub good_ns: u64,
    /// How long "there are none" holds.
    pub bad_ns: u64,
    /// How much longer addresses are used when they cannot be resolved again.
    pub stale_ns: u64,
    /// Lookups at the same time.
    pub threads: usize,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        const SECOND_NS: u64 = 1_000_000_000;
        Self {
            good_ns: 30 * SECOND_NS,
            bad_ns: SECOND_NS,
            stale_ns: 600 * SECOND_NS,
            threads: 2,
        }
    }
}

/// Why a name has no addresses.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The system's resolver reports it.
    #[error("cannot find the host {name}: {reason}; check the name, or give its IP address")]
    Unknown {
        /// The name.
        name: String,
        /// The system's error.
        reason: Arc<str>,
    },
    /// Too many names are being resolved.
    #[error("cannot look {name} up now: {limit} lookups wait already")]
    Busy {
        /// The name.
        name: String,
        /// The most that may wait.
        limit: usize,
    },
    /// The lookup panicked.
    #[error("cannot look {name} up: the lookup panicked; the log says where")]
    Panicked {
        /// The name.
        name: String,
    },
    /// The resolver has ended.
    #[error("cannot look {name} up: there is no resolver here; give IP addresses")]
    NoResolver {
        /// The name.
        name: String,
    },
}

/// Resolves a name, which may take long.
type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

struct Question {
    id: u64,
    host: String,
    port: u16,
    reply_to: MailboxSender<Answer>,
}

/// Result of a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// As it was asked with.
    pub(crate) id: u64,
    /// The addresses in the order to try them: at least one.
    pub(crate) result: Result<Arc<[Address]>, ResolveError>,
    /// How long it holds.
    pub(crate) valid_ns: u64,
}

/// The resolver of a process. Clones are the same; its threads end with the last of them and of its
/// clients.
#[derive(Clone)]
pub struct Resolver {
    asking: Asking,
}

#[derive(Clone)]
enum Asking {
    Threads(SyncSender<Question>),
    /// In the caller's own thread: where time is simulated.
    #[cfg(feature = "simulator")]
    AtOnce(Arc<ResponseContext>),
}

/// One shard's way to a resolver.
pub struct ResolverClient {
    asking: Asking,
    reply_to: MailboxSender<Answer>,
    mailbox: Mailbox<Answer>,
    /// Taken out of the mailbox, oldest first.
    answers: VecDeque<Answer>,
    /// Kept for its memory.
    drained: Vec<Answer>,
}

impl fmt::Debug for ResolverClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ResolverClient")
            .finish_non_exhaustive()
    }
}

/// State shared by the helper threads.
struct ResponseContext {
    lookup: Box<Lookup>,
    cache: Mutex<Cache>,
    origin: Instant,
}

impl Resolver {
    /// Starts the helper threads; they ask the system.
    pub fn start(config: ResolverConfig) -> io::Result<Self> {
        Self::with_lookup(config, system_lookup)
    }

    /// As [`Self::start`], with another function to resolve names.
    pub fn with_lookup(
        config: ResolverConfig,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let desk = Arc::new(ResponseContext::new(config, lookup));
        let (sender, receiver) = sync_channel(QUESTIONS_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..config.threads.max(1) {
            let (desk, receiver) = (Arc::clone(&desk), Arc::clone(&receiver));
            Builder::new()
                .name("resolver".to_owned())
                .spawn(move || desk.serve(&receiver))?;
        }
        Ok(Self {
            asking: Asking::Threads(sender),
        })
    }

    /// A resolver without threads, which resolves names on the calling thread: for simulations, whose time does not
    /// wait for threads.
    #[cfg(feature = "simulator")]
    #[must_use]
    pub fn at_once(
        config: ResolverConfig,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            asking: Asking::AtOnce(Arc::new(ResponseContext::new(config, lookup))),
        }
    }

    /// The way of one shard, which `waker` wakes.
    #[must_use]
    pub fn client(&self, waker: Waker) -> ResolverClient {
        let (reply_to, mailbox) = Mailbox::new(ANSWERS_MAX, waker);
        ResolverClient {
            asking: self.asking.clone(),
            reply_to,
            mailbox,
            answers: VecDeque::new(),
            drained: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Resolver")
    }
}

impl ResolverClient {
    /// Asks; the response bears `id`.
    pub(crate) fn ask(&self, id: u64, host: &str, port: u16) -> Result<(), ResolveError> {
        let question = Question {
            id,
            host: host.to_owned(),
            port,
            reply_to: self.reply_to.clone(),
        };
        match &self.asking {
            Asking::Threads(sender) => sender.try_send(question).map_err(|error| match error {
                TrySendError::Full(question) => ResolveError::Busy {
                    name: question.host,
                    limit: QUESTIONS_MAX,
                },
                TrySendError::Disconnected(question) => ResolveError::NoResolver {
                    name: question.host,
                },
            }),
            #[cfg(feature = "simulator")]
            Asking::AtOnce(desk) => {
                desk.answer(question);
                Ok(())
            }
        }
    }

    /// The next response, if one has come.
    pub(crate) fn next_answer(&mut self) -> Option<Answer> {
        if self.answers.is_empty() {
            self.mailbox.drain_into(&mut self.drained);
            self.answers.extend(self.drained.drain(..));
        }
        self.answers.pop_front()
    }
}

impl ResponseContext {
    fn new(
        config: ResolverConfig,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            lookup: Box::new(lookup),
            cache: Mutex::new(Cache::new(config)),
            origin: Instant::now(),
        }
    }

    /// The life of a helper thread.
    fn serve(&self, questions: &Mutex<Receiver<Question>>) {
        loop {
            let next = {
                let questions = questions.lock().unwrap_or_else(PoisonError::into_inner);
                questions.recv()
            };
            match next {
                Ok(question) => self.answer(question),
                Err(_) => return,
            }
        }
    }

    fn answer(&self, question: Question) {
        let Question {
            id,
            host,
            port,
            reply_to,
        } = question;
        // The caller would wait for ever if the thread ended, and others after it.
        let find = AssertUnwindSafe(|| self.find(&host, port));
        let Cached { result, valid_ns } = panic::catch_unwind(find).unwrap_or_else(|_| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            Cached {
                result: Err(ResolveError::Panicked { name: host }),
                valid_ns: PANICKED_VALID_NS,
            }
        });
        // A full mailbox is a shard that does not read: its pool asks again.
        let _ = reply_to.send(Answer {
            id,
            result,
            valid_ns,
        });
    }

    fn find(&self, host: &str, port: u16) -> Cached {
        let lock = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = lock().get(host, port, self.now_ns()) {
            return cached;
        }
        let found = look_up_with(host, port, &self.lookup);
        let found = found.map_err(|error| ResolveError::Unknown {
            name: host.to_owned(),
            reason: error.to_string().into(),
        });
        lock().put(host, port, found, self.now_ns())
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Result of the system's resolver (getaddrinfo, which blocks).
pub(crate) fn system_lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// The addresses of a name in the order to try them: at least one.
pub(crate) fn look_up_with(
    host: &str,
    port: u16,
    lookup: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> io::Result<Arc<[Address]>> {
    let addresses = in_order(lookup(host, port)?);
    match addresses.is_empty() {
        true => Err(io::Error::other("it has no address")),
        false => Ok(addresses),
    }
}

/// The families take turns, the one of the system's first choice first (RFC 8305, 4); each keeps its
/// order, and nothing comes twice.
fn in_order(found: Vec<SocketAddr>) -> Arc<[Address]> {
    let Some(first) = found.first() else {
        return Arc::new([]);
    };
    let begins_with_v6 = first.is_ipv6();
    let (first, second): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|address| address.is_ipv6() == begins_with_v6);
    let mut ordered = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            break;
        }
        for address in pair.into_iter().flatten().map(Address::Inet) {
            if !ordered.contains(&address) {
                ordered.push(address);
            }
        }
    }
    ordered.truncate(ADDRESSES_MAX);
    ordered.into()
}

// Earlier results, good and bad, and how long they are valid. It has no clock of its own.

/// Names that are remembered at most; beyond it those go that hold no longer, and then all.
const NAMES_MAX: usize = 4096;

/// A response and how long it holds from now on.
#[derive(Clone, Debug)]
struct Cached {
    result: Result<Arc<[Address]>, ResolveError>,
    valid_ns: u64,
}

struct Entry {
    result: Result<Arc<[Address]>, ResolveError>,
    until_ns: u64,
    /// When the addresses were resolved.
    found_ns: u64,
}

struct Cache {
    config: ResolverConfig,
    entries: HashMap<(String, u16), Entry>,
}

impl Cache {
    fn new(config: ResolverConfig) -> Self {
        Self {
            config,
            entries: HashMap::new(),
        }
    }

    /// The known and valid result.
    fn get(&self, host: &str, port: u16, now_ns: u64) -> Option<Cached> {
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

    /// Stores a lookup's result; returns the response: after a failed lookup the earlier addresses, unless those are
    /// too old.
    fn put(
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

    /// Whether old addresses may be used instead of new ones.
    fn is_usable(&self, entry: &Entry, now_ns: u64) -> bool {
        let serves_ns = self.config.good_ns.saturating_add(self.config.stale_ns);
        now_ns < entry.found_ns.saturating_add(serves_ns)
    }
}

#[cfg(test)]
#[path = "tests/resolver.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/cache.rs"]
mod cache_tests;
