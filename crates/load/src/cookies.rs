//! The cookies of a thread's connections: each is a user that keeps what the server sets.
//!
//! On the path, with `--cookies` alone: `session` shows each answer's head here, `worker` has each
//! request written here, which is the workload's with a Cookie field at the end of its head. A user
//! is a place among the connections: the connection that takes the place of one that closed has its
//! cookies. Absent on purpose: domains. A run asks one server, so every cookie is that host's; and
//! scripts, which write their requests themselves.
mod jar;

use self::jar::{Deed, Jar, Now, given};
use crate::outcome::InFlight;
use crate::schedule::Arrival;
use crate::session::Session;
use crate::workload::Requests;
use memchr::memmem;
use millpond_measure::record::LoadCookies;
use millpond_mempool::{BlockPool, Buffer, PoolError, PoolMode};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most cookies of one user: what RFC 6265 asks of browsers for one host.
pub const COOKIES_MAX: usize = 50;
/// Most bytes of names, values and paths of one user. Servers refuse heads above 8 KiB or 16 KiB.
pub const COOKIE_BYTES_MAX: usize = 4 << 10;

const HEAD_END: &[u8] = b"\r\n\r\n";

/// What users begin with.
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
    /// What came of the fields that set cookies.
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

    /// The head of the answer to `request` has come to user `index`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_paths_are_found() {
        assert_eq!(
            set_cookie(b"Set-Cookie: a=b; Path=/\r"),
            Some(&b"a=b; Path=/"[..])
        );
        assert_eq!(set_cookie(b"set-cookie:a=b"), Some(&b"a=b"[..]));
        assert_eq!(set_cookie(b"Set-Cookie2: a=b"), None);
        assert_eq!(set_cookie(b"Server: set-cookie:"), None);
        assert_eq!(set_cookie(b"s"), None);
        assert_eq!(path_of(b"GET /a/b?c=/d HTTP/1.1\r\n"), b"/a/b");
        assert_eq!(path_of(b"GET /a/b HTTP/1.1\r\n"), b"/a/b");
        for (path, directory) in [
            ("/", "/"),
            ("/a", "/"),
            ("/a/", "/a"),
            ("/a/b", "/a"),
            ("", "/"),
        ] {
            assert_eq!(
                directory_of(path.as_bytes()),
                directory.as_bytes(),
                "{path}"
            );
        }
    }

    #[test]
    fn plans_are_checked() {
        let plan = |given: &[(&str, &str)]| CookiePlan {
            given: given
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        assert_eq!(plan(&[("a", "b"), ("c", "")]).check(), Ok(()));
        for bad in [
            ("", "b"),
            ("a", "b;c"),
            ("a b", "c\n"),
            ("a=b", "c"),
            ("a", &"x".repeat(5_000)),
        ] {
            assert!(plan(&[bad]).check().is_err(), "{bad:?}");
        }
    }
}
