//! One user's cookies, in one run of bytes that stops growing at its limit.
//!
//! On the path: `cookies` puts in what a Set-Cookie field says and takes out a Cookie field, both
//! by RFC 6265. Absent on purpose: a heap call for each request. A value that is set again lies
//! where the old one lay.
use super::{COOKIE_BYTES_MAX, COOKIES_MAX};
use cookie::{Cookie, Expiration};

const SECOND_NS: u64 = 1_000_000_000;
/// Until the run ends.
const NEVER: u64 = u64::MAX;

/// What came of a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Deed {
    /// The user has the cookie now.
    Set,
    /// The server took it away.
    Deleted,
    /// There is no room for it; what was there under its name is gone.
    Overflowed,
    /// It is no cookie, or one that may not be sent here.
    Unusable,
}

/// The time, on both clocks; the second one is asked only by dates.
pub(super) struct Now<F> {
    pub(super) monotonic_ns: u64,
    pub(super) unix_s: F,
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
pub(super) struct Jar {
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
    pub(super) fn set<'p>(
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
    pub(super) fn write_field(&self, path: &[u8], now_ns: u64, out: &mut Vec<u8>) {
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
pub(super) fn given(jar: &mut Jar, name: &str, value: &str) -> bool {
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

/// What can be sent back: text without control characters, which a Cookie field may not hold.
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const UNIX_S: i64 = 1_700_000_000;

    fn set_at(jar: &mut Jar, field: &str, now_ns: u64) -> Deed {
        let now = Now {
            monotonic_ns: now_ns,
            unix_s: || UNIX_S,
        };
        jar.set(field.as_bytes(), || b"/d", false, now)
    }

    fn sent(jar: &Jar, path: &str, now_ns: u64) -> String {
        let mut out = b"old".to_vec();
        jar.write_field(path.as_bytes(), now_ns, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Goal: name and path are what a cookie is; the longer path is sent first, then the older one.
    #[test]
    fn cookies_are_sent_where_they_belong() {
        let mut jar = Jar::default();
        for field in [
            "a=1; Path=/",
            "b=2; path=/x",
            "c=3",
            "d=4; Path=nonsense",
            "a=5; Path=/x/",
        ] {
            assert_eq!(set_at(&mut jar, field, 1), Deed::Set, "{field}");
        }
        assert_eq!(sent(&jar, "/", 1), "Cookie: a=1\r\n");
        assert_eq!(sent(&jar, "/x", 1), "Cookie: b=2; a=1\r\n");
        assert_eq!(sent(&jar, "/xy", 1), "Cookie: a=1\r\n");
        assert_eq!(sent(&jar, "/x/y", 1), "Cookie: a=5; b=2; a=1\r\n");
        assert_eq!(sent(&jar, "/d/e", 1), "Cookie: c=3; d=4; a=1\r\n");
        assert_eq!(set_at(&mut jar, "c=longer", 1), Deed::Set);
        assert_eq!(sent(&jar, "/d", 1), "Cookie: c=longer; d=4; a=1\r\n");
        assert_eq!(sent(&Jar::default(), "/", 1), "");
    }

    /// Goal: each way of taking a cookie away takes it away, and time does.
    #[test]
    fn cookies_expire() {
        let mut jar = Jar::default();
        for gone in [
            "a=; Max-Age=0",
            "a=; max-age=-5",
            "a=x; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        ] {
            assert_eq!(set_at(&mut jar, "a=1", 7), Deed::Set);
            assert_eq!(set_at(&mut jar, gone, 7), Deed::Deleted, "{gone}");
            assert_eq!(sent(&jar, "/d", 7), "", "{gone}");
        }
        assert_eq!(
            set_at(
                &mut jar,
                "a=1; Max-Age=2; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
                7
            ),
            Deed::Set
        );
        // Ten seconds later than the clock says.
        assert_eq!(
            set_at(&mut jar, "b=2; Expires=Tue, 14 Nov 2023 22:13:30 GMT", 7),
            Deed::Set
        );
        assert_eq!(sent(&jar, "/d", 6 + 2 * SECOND_NS), "Cookie: a=1; b=2\r\n");
        assert_eq!(sent(&jar, "/d", 7 + 2 * SECOND_NS), "Cookie: b=2\r\n");
        assert_eq!(sent(&jar, "/d", 7 + 10 * SECOND_NS), "");
        // The room of what expired is free again.
        assert_eq!(set_at(&mut jar, "c=3", 7 + 10 * SECOND_NS), Deed::Set);
        assert_eq!((jar.entries.len(), jar.bytes.len()), (1, 4));
    }

    #[test]
    fn what_is_no_cookie_is_counted_as_that() {
        let mut jar = Jar::default();
        for field in ["", "a", "=b", "a=b\u{1}c", "a=b; Secure"] {
            assert_eq!(set_at(&mut jar, field, 1), Deed::Unusable, "{field:?}");
        }
        let now = Now {
            monotonic_ns: 1,
            unix_s: || UNIX_S,
        };
        assert_eq!(jar.set(b"a=\xff", || b"/", false, now), Deed::Unusable);
        assert_eq!(sent(&jar, "/d", 1), "");
        let now = Now {
            monotonic_ns: 1,
            unix_s: || UNIX_S,
        };
        assert_eq!(jar.set(b"a=b; Secure", || b"/", true, now), Deed::Set);
    }

    /// Goal: both limits hold, and neither harms what is there.
    #[test]
    fn a_server_cannot_fill_the_memory() {
        let mut jar = Jar::default();
        for number in 0..COOKIES_MAX {
            assert_eq!(set_at(&mut jar, &format!("n{number}=v"), 1), Deed::Set);
        }
        assert_eq!(set_at(&mut jar, "more=v", 1), Deed::Overflowed);
        assert_eq!(set_at(&mut jar, "n7=w", 1), Deed::Set);
        let before = jar.bytes.len();
        let large = format!("n8={}", "x".repeat(COOKIE_BYTES_MAX));
        assert_eq!(set_at(&mut jar, &large, 1), Deed::Overflowed);
        assert!(jar.bytes.len() < before && jar.entries.len() == COOKIES_MAX - 1);
        let huge = format!("y={}", "x".repeat(1 << 17));
        assert_eq!(set_at(&mut jar, &huge, 1), Deed::Overflowed);
    }

    proptest! {
        /// Goal: after any fields in any order, what is sent is what a map of name and path says.
        #[test]
        fn a_jar_is_a_map(
            fields in prop::collection::vec((0_u8..5, "[a-z]{0,6}", 0_u8..3, prop::option::of(0_u64..20)), 0..40),
        ) {
            let mut jar = Jar::default();
            let mut model = BTreeMap::new();
            for (now_s, (name, value, path, age_s)) in (0_u64..).zip(fields) {
                let (name, path) = (format!("n{name}"), ["/", "/p", "/p/q"][usize::from(path)]);
                let age = age_s.map_or(String::new(), |age_s| format!("; Max-Age={age_s}"));
                set_at(&mut jar, &format!("{name}={value}; Path={path}{age}"), now_s * SECOND_NS);
                let until_s = age_s.map_or(u64::MAX, |age_s| now_s + age_s);
                model.insert((name, path), (value, until_s));
                model.retain(|_, (_, until_s)| *until_s > now_s);
                let mut got: Vec<String> = sent(&jar, "/p/q", now_s * SECOND_NS)
                    .trim_start_matches("Cookie: ")
                    .trim_end()
                    .split("; ")
                    .filter(|pair| !pair.is_empty())
                    .map(str::to_owned)
                    .collect();
                got.sort();
                let mut expected: Vec<String> = model
                    .iter()
                    .map(|((name, _), (value, _))| format!("{name}={value}"))
                    .collect();
                expected.sort();
                prop_assert_eq!(got, expected);
            }
        }
    }
}
