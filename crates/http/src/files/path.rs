//! A request's path as the name of a file: decoded once, and refused if it is no plain name.
//!
//! On the path: the service decodes here, looks the name up in `cache`, and opens it beneath the
//! root. What is refused here never reaches the kernel.
//!
//! Absent on purpose: repairing. `..`, `.` and empty segments are what a client removes before it
//! asks (RFC 3986 5.2.4), so one that sends them probes. Escaped slashes and NULs name no file.

use millpond_mempool::{Arena, PoolError};

/// What a directory is answered with.
pub(super) const INDEX: &[u8] = b"index.html";

/// The one directory with a dot whose files are public: RFC 8615.
const WELL_KNOWN: &[u8] = b".well-known";

/// The name of a file, relative to the root. Never empty, never absolute, no `.`, `..` or empty
/// segment and no NUL in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FilePath<'a> {
    pub(super) relative: &'a [u8],
    /// The request named a directory, and this is its index.
    pub(super) is_index: bool,
}

/// Why a path names no file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PathRefusal {
    /// Not a plain path: 400.
    Malformed,
    /// A name that begins with a dot, which is not served: 404, as if it did not exist.
    Hidden,
    /// No memory to decode it: 503.
    Memory,
}

impl From<PoolError> for PathRefusal {
    fn from(_: PoolError) -> Self {
        Self::Memory
    }
}

impl<'a> FilePath<'a> {
    /// Reads the path of a target. One without escapes is not copied, unless it names a directory.
    pub(super) fn decode(path: &'a [u8], arena: &'a Arena) -> Result<Self, PathRefusal> {
        let Some(escaped) = path.strip_prefix(b"/") else {
            return Err(PathRefusal::Malformed);
        };
        let is_index = escaped.is_empty() || escaped.ends_with(b"/");
        let segments = escaped.strip_suffix(b"/").unwrap_or(escaped);
        if segments.is_empty() {
            // "//" has an empty segment; "/" has none.
            return match escaped {
                [] => Ok(Self {
                    relative: INDEX,
                    is_index,
                }),
                _ => Err(PathRefusal::Malformed),
            };
        }
        // A backslash is no byte of a URI, and a slash to some browsers that follow a redirect.
        if memchr::memchr2(b'\\', 0, segments).is_some() {
            return Err(PathRefusal::Malformed);
        }
        let relative = if is_index || memchr::memchr(b'%', segments).is_some() {
            let room = arena.alloc_slice(segments.len() + 1 + INDEX.len())?;
            let mut end = decode_into(segments, room)?;
            if is_index {
                room[end] = b'/';
                room[end + 1..][..INDEX.len()].copy_from_slice(INDEX);
                end += 1 + INDEX.len();
            }
            &room[..end]
        } else {
            segments
        };
        check_segments(relative)?;
        Ok(Self { relative, is_index })
    }
}

/// Undoes percent-encoding; `room` is at least as long as `escaped`.
fn decode_into(escaped: &[u8], room: &mut [u8]) -> Result<usize, PathRefusal> {
    let mut rest = escaped;
    let mut end = 0;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
                if matches!(byte, 0 | b'/') {
                    return Err(PathRefusal::Malformed);
                }
                (byte, after)
            }
            (b'%', _) => return Err(PathRefusal::Malformed),
            _ => (*first, after),
        };
        room[end] = byte;
        end += 1;
        rest = after;
    }
    Ok(end)
}

fn hex_digit(digit: u8) -> Result<u8, PathRefusal> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(PathRefusal::Malformed),
    }
}

fn check_segments(relative: &[u8]) -> Result<(), PathRefusal> {
    let mut refusal = None;
    for (index, segment) in relative.split(|&byte| byte == b'/').enumerate() {
        if matches!(segment, b"" | b"." | b"..") {
            return Err(PathRefusal::Malformed);
        }
        if segment[0] == b'.' && !(index == 0 && segment == WELL_KNOWN) {
            refusal = Some(PathRefusal::Hidden);
        }
    }
    refusal.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_mempool::PoolMode;
    use proptest::prelude::*;

    fn decode(path: &[u8]) -> Result<(Vec<u8>, bool), PathRefusal> {
        let arena = Arena::new("test", PoolMode::On);
        FilePath::decode(path, &arena).map(|path| (path.relative.to_vec(), path.is_index))
    }

    /// Goal: plain names pass, escaped or not; directories become their index.
    #[test]
    fn plain_paths_become_relative_names() {
        for (path, relative, is_index) in [
            ("/", "index.html", true),
            ("/a", "a", false),
            ("/a/", "a/index.html", true),
            ("/a/b.css", "a/b.css", false),
            ("/a%20b", "a b", false),
            ("/%61/%62/", "a/b/index.html", true),
            ("/%E2%82%ac", "\u{20ac}", false),
            ("/a%5cb", "a\\b", false),
            ("/a..b/c.", "a..b/c.", false),
            (
                "/.well-known/acme-challenge/t",
                ".well-known/acme-challenge/t",
                false,
            ),
            ("/100%25", "100%", false),
        ] {
            assert_eq!(
                decode(path.as_bytes()),
                Ok((relative.as_bytes().to_vec(), is_index)),
                "{path}"
            );
        }
    }

    /// Goal: what is no plain name is refused, whichever way it is written.
    #[test]
    fn hostile_paths_are_refused() {
        for path in [
            "",
            "*",
            "a",
            "//",
            "//a",
            "/a//b",
            "/a//",
            "/.",
            "/..",
            "/../",
            "/./",
            "/a/..",
            "/a/../b",
            "/%2e%2e/a",
            "/.%2e/a",
            "/%2E",
            "/a/%2e%2E/",
            "/%2f",
            "/a%2fb",
            "/a%2Fb",
            "/%00",
            "/a%00.html",
            "/%",
            "/%2",
            "/a%",
            "/%g0",
            "/%0g",
            "/%+1",
            "/% 1",
            "/a\\b",
            "/\\..\\a",
            "/\\evil.example/",
            "/%252e%252e%2fa",
        ] {
            assert_eq!(
                decode(path.as_bytes()),
                Err(PathRefusal::Malformed),
                "{path}"
            );
        }
        for path in [
            "/.git/config",
            "/a/.htpasswd",
            "/.env",
            "/%2egit/",
            "/a/.well-known/b",
            "/...",
        ] {
            assert_eq!(decode(path.as_bytes()), Err(PathRefusal::Hidden), "{path}");
        }
    }

    proptest! {
        /// Goal: whatever comes, an accepted name keeps the promises of its type.
        #[test]
        fn accepted_names_are_plain(path in "/[/.%a2eEfF0\\\\\u{0}-\u{ff}]{0,12}") {
            if let Ok((relative, is_index)) = decode(path.as_bytes()) {
                prop_assert!(!relative.contains(&0));
                for segment in relative.split(|&byte| byte == b'/') {
                    prop_assert!(!segment.is_empty() && segment != b"." && segment != b"..");
                }
                prop_assert_eq!(is_index, path.ends_with('/'));
                prop_assert!(!is_index || relative.ends_with(INDEX));
            }
        }

        /// Goal: every name without slash, NUL and leading dot survives being escaped byte by byte.
        #[test]
        fn escaping_everything_round_trips(name in proptest::collection::vec(1_u8..=255, 1..40)) {
            prop_assume!(!name.contains(&b'/') && name[0] != b'.');
            let escaped: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(decode(format!("/{escaped}").as_bytes()), Ok((name, false)));
        }
    }
}
