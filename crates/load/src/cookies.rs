//! The cookies of a thread's connections: each is a user that keeps what the server sets.
//!
//! With `--cookies` alone: `connection` shows each response's head here, `worker` has each request
//! written here, which is the workload's with a Cookie field at the end of its head. A user is a
//! place among the connections: the connection that replaces a closed one has its cookies. A run
//! has one server, so every cookie is that host's. Scripts are excluded: they write their requests
//! themselves.

use std::time::{SystemTime, UNIX_EPOCH};

use cookie::{Cookie, Expiration};
use memchr::memmem;
use millpond_measure::record::LoadCookies;
use millpond_mempool::{BlockPool, Buffer, PoolError, PoolMode};

use crate::connection::Session;
use crate::outcome::InFlight;
use crate::schedule::Arrival;
use crate::workload::Requests;

/// Most cookies of one user: what RFC 6265 asks of browsers for one host.
pub const COOKIES_MAX: usize = 50;
/// Most bytes of names, values and paths of one user. Servers refuse heads above 8 KiB or 16 KiB.
pub const COOKIE_BYTES_MAX: usize = 4 << 10;

const HEAD_END: &[u8] = b"\r\n\r\n";

/// The initial cookies of users.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CookiePlan {
    /// Names and values that every user has from the start, for all paths.
    pub given: Vec<(String, String)>,
}

impl CookiePlan {
    /// Refuses what no request can carry.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut jar = Jar::default();
        for (name, value) in &self.given {
            if !given(&mut jar, name, value) {
                return Err(format!(
                    "{name}={value} is no cookie, or too much: {COOKIES_MAX} of \
                     {COOKIE_BYTES_MAX} bytes together are possible"
                ));
            }
        }
        Ok(())
    }
}

/// The users of one thread.
#[derive(Debug)]
pub(crate) struct Cookies {
    jars: Vec<Jar>,
    is_tls: bool,
    /// The counts of fields that set cookies.
    pub(crate) counts: LoadCookies,
    pool: BlockPool,
    /// The request in hand, before its cookies are in it.
    request: Buffer,
    /// Its Cookie field.
    field: Vec<u8>,
}

impl Cookies {
    pub(crate) fn new(plan: &CookiePlan, users: usize, is_tls: bool, pools: PoolMode) -> Self {
        let mut first = Jar::default();
        for (name, value) in &plan.given {
            given(&mut first, name, value);
        }
        Self {
            jars: vec![first; users],
            is_tls,
            counts: LoadCookies::default(),
            pool: BlockPool::new("load_cookies", pools),
            request: Buffer::new(),
            field: Vec::with_capacity(COOKIE_BYTES_MAX),
        }
    }

    /// As [`Session::take`], with the cookies of user `index`.
    pub(crate) fn take(
        &mut self,
        session: &mut Session,
        index: u32,
        arrival: &Arrival,
        requests: &Requests,
        pool: &BlockPool,
        now_ns: u64,
    ) -> Result<bool, PoolError> {
        self.request.clear();
        let asked = requests.append(arrival.number, &self.pool, &mut self.request, 1)?;
        let bytes = self.request.as_slice();
        let fields_end = memmem::find(bytes, HEAD_END).map_or(bytes.len(), |at| at + 2);
        let (fields, rest) = bytes.split_at(fields_end);
        self.jars[index as usize].write_field(path_of(fields), now_ns, &mut self.field);
        session.take_parts([fields, &self.field, rest], arrival, &asked, pool)
    }

    /// The head of the response to `request` arrived for user `index`.
    pub(crate) fn head(
        &mut self,
        index: u32,
        request: Option<&InFlight>,
        head: &[u8],
        requests: &Requests,
        now_ns: u64,
    ) {
        for line in head.split(|&byte| byte == b'\n').skip(1) {
            let Some(value) = set_cookie(line) else {
                continue;
            };
            let number = request.map_or(0, |request| request.number);
            self.set(index, value, number, requests, now_ns);
        }
    }

    fn set(&mut self, index: u32, value: &[u8], number: u64, requests: &Requests, now_ns: u64) {
        let now = Now {
            monotonic_ns: now_ns,
            unix_s: || {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| since.as_secs().cast_signed())
            },
        };
        let Self { pool, request, .. } = self;
        let jar = &mut self.jars[index as usize];
        let counts = &mut self.counts;
        let deed = jar.set(
            value,
            // Which path was asked for is written down nowhere: the request is made once more.
            move || {
                request.clear();
                let made = requests.append(number, pool, request, 1);
                let request: &Buffer = request;
                made.map_or(&b"/"[..], |_| directory_of(path_of(request.as_slice())))
            },
            self.is_tls,
            now,
        );
        match deed {
            Deed::Set => counts.set += 1,
            Deed::Deleted => counts.deleted += 1,
            Deed::Overflowed => counts.overflowed += 1,
            Deed::Unusable => counts.unusable += 1,
        }
    }
}

/// The value of a line that sets a cookie.
fn set_cookie(line: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"set-cookie";
    // Few fields begin like it.
    if !matches!(line.first(), Some(b's' | b'S')) || line.get(NAME.len()) != Some(&b':') {
        return None;
    }
    let (name, value) = line.split_at(NAME.len());
    name.eq_ignore_ascii_case(NAME)
        .then(|| value[1..].trim_ascii())
}

/// The path that a request asks for, without its query.
fn path_of(request: &[u8]) -> &[u8] {
    let target = request.split(|&byte| byte == b' ').nth(1).unwrap_or(b"/");
    let end = memchr::memchr2(b'?', b'#', target);
    &target[..end.unwrap_or(target.len())]
}

/// RFC 6265, 5.1.4: what a cookie without a path is for.
fn directory_of(path: &[u8]) -> &[u8] {
    match memchr::memrchr(b'/', path) {
        Some(0) | None => b"/",
        Some(end) => &path[..end],
    }
}

// One user's cookies, in one run of bytes that stops growing at its limit.

const SECOND_NS: u64 = 1_000_000_000;
/// Until the run ends.
const NEVER: u64 = u64::MAX;

/// The effect of a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Deed {
    /// The user has the cookie now.
    Set,
    /// The server removed it.
    Deleted,
    /// There is no room for it; the cookie with its name is removed.
    Overflowed,
    /// It is no cookie, or one that may not be sent here.
    Unusable,
}

/// The time, on both clocks; the second one is asked only by dates.
struct Now<F> {
    monotonic_ns: u64,
    unix_s: F,
}

/// A cookie's place: its name, value and path lie behind those of the entries before it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    name_bytes: u16,
    value_bytes: u16,
    path_bytes: u16,
    expires_ns: u64,
}

impl Entry {
    fn len(&self) -> usize {
        usize::from(self.name_bytes) + usize::from(self.value_bytes) + usize::from(self.path_bytes)
    }
}

/// Invariants: `bytes` are those of `entries`, in order; longer paths come first, of equally long
/// ones the older, which is the order that they are sent in.
#[derive(Clone, Debug, Default)]
struct Jar {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

/// A cookie in its parts.
#[derive(Clone, Copy)]
struct Parts<'a> {
    name: &'a [u8],
    value: &'a [u8],
    path: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(entry: &Entry, bytes: &'a [u8]) -> Self {
        let (name, rest) = bytes.split_at(usize::from(entry.name_bytes));
        let (value, path) = rest.split_at(usize::from(entry.value_bytes));
        Self { name, value, path }
    }

    fn entry(&self, expires_ns: u64) -> Option<Entry> {
        Some(Entry {
            name_bytes: self.name.len().try_into().ok()?,
            value_bytes: self.value.len().try_into().ok()?,
            path_bytes: self.path.len().try_into().ok()?,
            expires_ns,
        })
    }
}

impl Jar {
    /// Does what a Set-Cookie field says.
    fn set<'p>(
        &mut self,
        field: &[u8],
        default_path: impl FnOnce() -> &'p [u8],
        is_tls: bool,
        now: Now<impl FnOnce() -> i64>,
    ) -> Deed {
        let Some(cookie) = parse(field) else {
            return Deed::Unusable;
        };
        // It would be kept and never sent.
        if cookie.secure() == Some(true) && !is_tls {
            return Deed::Unusable;
        }
        let path = match cookie.path() {
            Some(path) if path.starts_with('/') => path.as_bytes(),
            _ => default_path(),
        };
        let now_ns = now.monotonic_ns;
        let expires_ns = expiry(&cookie, now);
        let parts = Parts {
            name: cookie.name().as_bytes(),
            value: cookie.value().as_bytes(),
            path,
        };
        self.put(&parts, expires_ns, now_ns)
    }

    fn put(&mut self, parts: &Parts<'_>, expires_ns: u64, now_ns: u64) -> Deed {
        self.drop_expired(now_ns);
        let old = self.find(parts);
        if expires_ns <= now_ns {
            if let Some((place, at)) = old {
                self.remove(place, at);
            }
            return Deed::Deleted;
        }
        let Some(entry) = parts.entry(expires_ns) else {
            return Deed::Overflowed;
        };
        if let Some((place, at)) = old {
            if self.entries[place].value_bytes == entry.value_bytes {
                let value_at = at + parts.name.len();
                self.bytes[value_at..][..parts.value.len()].copy_from_slice(parts.value);
                self.entries[place] = entry;
                return Deed::Set;
            }
            self.remove(place, at);
        }
        if self.entries.len() == COOKIES_MAX || self.bytes.len() + entry.len() > COOKIE_BYTES_MAX {
            return Deed::Overflowed;
        }
        // One that is set again keeps its turn.
        let (place, at) = old.unwrap_or_else(|| self.place_for(entry.path_bytes));
        self.entries.insert(place, entry);
        let text = [parts.name, parts.value, parts.path];
        self.bytes
            .splice(at..at, text.into_iter().flatten().copied());
        Deed::Set
    }

    fn remove(&mut self, place: usize, at: usize) {
        let entry = self.entries.remove(place);
        self.bytes.drain(at..at + entry.len());
    }

    /// Where the cookie of this name and path stands, and its bytes begin.
    fn find(&self, parts: &Parts<'_>) -> Option<(usize, usize)> {
        let mut at = 0;
        for (place, entry) in self.entries.iter().enumerate() {
            let here = Parts::of(entry, &self.bytes[at..at + entry.len()]);
            if here.name == parts.name && here.path == parts.path {
                return Some((place, at));
            }
            at += entry.len();
        }
        None
    }

    fn place_for(&self, path_bytes: u16) -> (usize, usize) {
        let before = self
            .entries
            .iter()
            .take_while(|entry| entry.path_bytes >= path_bytes);
        before.fold((0, 0), |(place, at), entry| (place + 1, at + entry.len()))
    }

    fn drop_expired(&mut self, now_ns: u64) {
        let (mut place, mut at) = (0, 0);
        while let Some(entry) = self.entries.get(place) {
            if entry.expires_ns <= now_ns {
                self.remove(place, at);
            } else {
                at += entry.len();
                place += 1;
            }
        }
    }

    /// Makes `out` the field of a request for `path`, its line end included; empty if none is due.
    fn write_field(&self, path: &[u8], now_ns: u64, out: &mut Vec<u8>) {
        out.clear();
        let mut at = 0;
        for entry in &self.entries {
            let here = Parts::of(entry, &self.bytes[at..at + entry.len()]);
            at += entry.len();
            if entry.expires_ns <= now_ns || !is_within(path, here.path) {
                continue;
            }
            let before: &[u8] = if out.is_empty() { b"Cookie: " } else { b"; " };
            for part in [before, here.name, b"=", here.value] {
                out.extend_from_slice(part);
            }
        }
        if !out.is_empty() {
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A cookie that comes from the user and not from the server; false if it is none or has no room.
fn given(jar: &mut Jar, name: &str, value: &str) -> bool {
    let is_plain = |text: &str| {
        text.bytes()
            .all(|byte| byte > b' ' && byte != 0x7f && byte != b';')
    };
    let parts = Parts {
        name: name.as_bytes(),
        value: value.as_bytes(),
        path: b"/",
    };
    !name.is_empty()
        && !name.contains('=')
        && is_plain(name)
        && is_plain(value)
        && jar.put(&parts, NEVER, 0) == Deed::Set
}

/// Values that can be sent back: text without control characters, which a Cookie field may not hold.
fn parse(field: &[u8]) -> Option<Cookie<'_>> {
    let text = std::str::from_utf8(field).ok()?;
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return None;
    }
    Cookie::parse(text).ok()
}

/// Max-Age goes before Expires; with neither it stays.
fn expiry(cookie: &Cookie<'_>, now: Now<impl FnOnce() -> i64>) -> u64 {
    let left_s = match (cookie.max_age(), cookie.expires()) {
        (Some(age), _) => age.whole_seconds(),
        (None, Some(Expiration::DateTime(date))) => {
            date.unix_timestamp().saturating_sub((now.unix_s)())
        }
        _ => return NEVER,
    };
    let left_ns = u64::try_from(left_s).unwrap_or(0).saturating_mul(SECOND_NS);
    now.monotonic_ns.saturating_add(left_ns)
}

/// RFC 6265, 5.1.4.
fn is_within(path: &[u8], cookie_path: &[u8]) -> bool {
    path.strip_prefix(cookie_path).is_some_and(|rest| {
        rest.is_empty() || cookie_path.ends_with(b"/") || rest.starts_with(b"/")
    })
}

#[cfg(test)]
#[path = "tests/cookies.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/jar.rs"]
mod jar_tests;
