//! Which part of a file a GET or HEAD gets, if any: preconditions first, then the range.
//!
//! RFC 9110 13.2.2 gives the order: `If-Match`, else `If-Unmodified-Since`; `If-None-Match`, else `If-Modified-Since`;
//! `Range` with `If-Range`. An invalid field is ignored, except `If-Match`, which exists to refuse.
//!
//! `Range` may be ignored (14.2), the whole file is always correct, and `multipart/byteranges` lets a short request ask
//! for much more than the file.

use std::io::Write;
use std::time::{Duration, SystemTime};

use httpdate::HttpDate;
use millpond_mempool::{BlockPool, Buffer, PoolError};
use rustix::fs::Stat;

use crate::head_text::{Field, FieldName, FieldValue};
use crate::method::Method;
use crate::request::Request;
use crate::request::{READ_ONLY, answer_other_method};
use crate::response::Response;
use crate::service::Flow;
use crate::status::StatusCode;

use super::path::OpenRefusal;
use super::path::{FilePath, PathRefusal};

/// The response to choose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Selection {
    /// 200
    Whole,
    /// 206
    Part(ByteRange),
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
    /// 416
    Unsatisfiable,
}

/// Some bytes of a file: at least one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ByteRange {
    pub(super) first: u64,
    /// The last one belongs to it.
    pub(super) last: u64,
}

impl ByteRange {
    pub(super) fn len_bytes(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Result of comparing a list of entity tags with ours.
#[derive(Clone, Copy, Debug, Default)]
struct TagList {
    is_there: bool,
    /// `*`, or our tag is in it.
    matches: bool,
}

/// A field that makes sense once.
#[derive(Clone, Copy, Debug, Default)]
enum Single<'a> {
    #[default]
    Missing,
    Value(&'a [u8]),
    /// More than one line: not valid.
    Repeated,
}

impl<'a> Single<'a> {
    fn put(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::Missing => Self::Value(value),
            Self::Value(_) | Self::Repeated => Self::Repeated,
        };
    }

    fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing | Self::Repeated => None,
        }
    }
}

/// Decides for a file with these validators and this size. `is_get`: ranges are GET's alone.
pub(super) fn select<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    validators: &Validators,
    size_bytes: u64,
    is_get: bool,
    now_s: impl FnOnce() -> u64,
) -> Selection {
    let tag = validators.tag();
    let (mut if_match, mut if_none_match) = (TagList::default(), TagList::default());
    let (mut if_modified, mut if_unmodified) = (Single::Missing, Single::Missing);
    let (mut range, mut if_range) = (Single::Missing, Single::Missing);
    for (name, value) in fields {
        // No name below is shorter; most fields of most requests are distinguished by their first byte.
        match name {
            [b'i' | b'I', ..] if name.len() >= 8 => {
                if name.eq_ignore_ascii_case(b"if-none-match") {
                    if_none_match.is_there = true;
                    if_none_match.matches |= lists_tag(value, tag, true);
                } else if name.eq_ignore_ascii_case(b"if-modified-since") {
                    if_modified.put(value);
                } else if name.eq_ignore_ascii_case(b"if-range") {
                    if_range.put(value);
                } else if name.eq_ignore_ascii_case(b"if-match") {
                    if_match.is_there = true;
                    if_match.matches |= lists_tag(value, tag, false);
                } else if name.eq_ignore_ascii_case(b"if-unmodified-since") {
                    if_unmodified.put(value);
                }
            }
            [b'r' | b'R', ..] if name.eq_ignore_ascii_case(b"range") => range.put(value),
            _ => {}
        }
    }
    let modified_s = validators.modified_s;
    if if_match.is_there {
        if !if_match.matches {
            return Selection::PreconditionFailed;
        }
    } else if if_unmodified
        .value()
        .and_then(date_s)
        .is_some_and(|since_s| modified_s > since_s)
    {
        return Selection::PreconditionFailed;
    }
    if if_none_match.is_there {
        if if_none_match.matches {
            return Selection::NotModified;
        }
    } else if if_modified
        .value()
        .and_then(date_s)
        .is_some_and(|since_s| modified_s <= since_s)
    {
        return Selection::NotModified;
    }
    let Some(range) = range.value().filter(|_| is_get) else {
        return Selection::Whole;
    };
    let is_same_file = match if_range {
        Single::Missing => true,
        Single::Repeated => false,
        Single::Value(value) if value.ends_with(b"\"") => value == tag,
        // A date is a strong validator only when a second change within its second is past.
        Single::Value(value) => value == validators.date() && modified_s < now_s(),
    };
    match is_same_file {
        true => select_range(range, size_bytes),
        false => Selection::Whole,
    }
}

fn date_s(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(seconds_since_epoch(date))
}

/// Whether a list of entity tags (RFC 9110 8.8.3) holds this one; a malformed tag ends the list.
fn lists_tag(list: &[u8], tag: &[u8], is_weak_equal: bool) -> bool {
    if list == b"*" {
        return true;
    }
    let mut rest = list;
    loop {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let (is_weak, opaque) = match rest.strip_prefix(b"W/") {
            Some(opaque) => (true, opaque),
            None => (false, rest),
        };
        let [b'"', inner @ ..] = opaque else {
            return false;
        };
        let Some(quote) = memchr::memchr(b'"', inner) else {
            return false;
        };
        if opaque[..quote + 2] == *tag && (is_weak_equal || !is_weak) {
            return true;
        }
        rest = &inner[quote + 1..];
        // Behind a tag comes a comma, or nothing.
        while let [b' ' | b'\t', after @ ..] = rest {
            rest = after;
        }
        if !matches!(rest, [b',', ..]) {
            return false;
        }
    }
}

/// RFC 9110 14.1.2, for one range. Numbers larger than any file count as just that.
fn select_range(value: &[u8], size_bytes: u64) -> Selection {
    let Some((unit, spec)) = value.split_at_checked("bytes=".len()) else {
        return Selection::Whole;
    };
    let spec = spec.trim_ascii();
    let mut ends = spec.splitn(2, |&byte| byte == b'-');
    let (Some(first), Some(last)) = (ends.next(), ends.next()) else {
        return Selection::Whole;
    };
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return Selection::Whole;
    }
    match (number(first), number(last)) {
        (Some(first), _) if last.is_empty() => from_to(first, u64::MAX, size_bytes),
        (Some(first), Some(last)) if first <= last => from_to(first, last, size_bytes),
        (None, Some(suffix)) if first.is_empty() => match suffix {
            0 => Selection::Unsatisfiable,
            // The last bytes of nothing: satisfiable, but Content-Range cannot express it.
            _ if size_bytes == 0 => Selection::Whole,
            _ => from_to(size_bytes.saturating_sub(suffix), u64::MAX, size_bytes),
        },
        _ => Selection::Whole,
    }
}

fn from_to(first: u64, last: u64, size_bytes: u64) -> Selection {
    if first >= size_bytes {
        return Selection::Unsatisfiable;
    }
    Selection::Part(ByteRange {
        first,
        last: last.min(size_bytes - 1),
    })
}

/// One digit or more; too many stay at the largest number.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

// A state of a file: the kernel's metadata, and the validators made from it.
//
// The entity tag is strong and made of inode, size and time of change in nanoseconds. It promises:
// two responses with one tag carry the same bytes, as long as files are replaced by renaming, or
// rewritten with a time of change that differs. A file overwritten in place, to the same length and
// within one step of the file system's clock (4 ms, or a time set back by hand), keeps its tag.
// Tags are those of one copy: another machine with the same files gives others.

const SECOND_NS: i64 = 1_000_000_000;

/// Two quotes, two hyphens and three numbers of up to 16 digits.
const TAG_BYTES_MAX: usize = 52;

const DATE_BYTES: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

/// The last second that an HTTP date can express: the end of the year 9999.
const DATE_S_MAX: u64 = 253_402_300_799;

/// One state of one file. Two that are equal have the same bytes, with the reserve above and one less: the time of the
/// inode's change is part of it, which cannot be set by hand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Version {
    pub(super) size_bytes: u64,
    device: u64,
    inode: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl Version {
    #[expect(
        clippy::unnecessary_cast,
        reason = "the fields' types differ between architectures"
    )]
    pub(super) fn of(stat: &Stat) -> Self {
        // Times from a disk may be anything: they wrap, which at worst is one tag for two states.
        let ns = |seconds: i64, ns: i64| seconds.wrapping_mul(SECOND_NS).wrapping_add(ns);
        Self {
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            modified_ns: ns(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed_ns: ns(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// Whether the file has been left alone for so long that its next change will be visible in its times: the clock of
    /// file systems stands still for some milliseconds at a time.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        const SETTLING: Duration = Duration::from_millis(100);
        let Ok(changed_ns) = u64::try_from(self.changed_ns) else {
            return false;
        };
        let changed = SystemTime::UNIX_EPOCH + Duration::from_nanos(changed_ns);
        now.duration_since(changed).is_ok_and(|age| age >= SETTLING)
    }
}

/// Values a client may compare: as text, made once for each opening of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators {
    tag: [u8; TAG_BYTES_MAX],
    tag_bytes: u8,
    date: [u8; DATE_BYTES],
    /// The second that `date` stands for.
    pub(super) modified_s: u64,
}

impl Validators {
    /// `now` caps the date: one in the future would never expire (RFC 9110 8.8.2.1).
    pub(super) fn new(version: &Version, now: SystemTime) -> Self {
        let mut tag = [0; TAG_BYTES_MAX];
        let mut rest = &mut tag[..];
        let (inode, size_bytes) = (version.inode, version.size_bytes);
        // Cannot fail: the array holds the longest numbers.
        let written = write!(
            rest,
            "\"{inode:x}-{size_bytes:x}-{:x}\"",
            version.modified_ns
        );
        debug_assert!(written.is_ok());
        let tag_bytes = (TAG_BYTES_MAX - rest.len()) as u8;
        let now_s = seconds_since_epoch(now);
        let modified_s = u64::try_from(version.modified_ns.div_euclid(SECOND_NS))
            .unwrap_or(0)
            .min(now_s)
            .min(DATE_S_MAX);
        let http_date = HttpDate::from(SystemTime::UNIX_EPOCH + Duration::from_secs(modified_s));
        let mut date = [0; DATE_BYTES];
        let mut rest = &mut date[..];
        // Cannot fail: an HTTP date has one length.
        let written = write!(rest, "{http_date}");
        debug_assert!(written.is_ok() && rest.is_empty());
        Self {
            tag,
            tag_bytes,
            date,
            modified_s,
        }
    }

    /// The entity tag, quotes included.
    pub(super) fn tag(&self) -> &[u8] {
        &self.tag[..usize::from(self.tag_bytes)]
    }

    /// `Last-Modified`.
    pub(super) fn date(&self) -> &[u8] {
        &self.date
    }
}

/// Zero for a clock set before 1970.
pub(super) fn seconds_since_epoch(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

// The part of a request that the file server needs, with its head still there or copied to wait.

/// A request for a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) file: FilePath<'a>,
    /// Path and query as sent, for a redirection.
    pub(super) path: &'a [u8],
    pub(super) query: Option<&'a [u8]>,
    pub(super) is_get: bool,
}

/// A question that waits, with the fields that decide about its response.
#[derive(Debug)]
pub(super) struct KeptQuestion {
    /// Name, path, query, then one line for each field.
    text: Buffer,
    name_bytes: usize,
    path_bytes: usize,
    query_bytes: Option<usize>,
    is_index: bool,
    is_get: bool,
}

fn decides(name: &[u8]) -> bool {
    [
        "range",
        "if-range",
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
    ]
    .iter()
    .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

impl KeptQuestion {
    pub(super) fn keep(
        question: &Question<'_>,
        request: &Request<'_>,
        blocks: &BlockPool,
    ) -> Result<Self, PoolError> {
        let mut text = Buffer::new();
        let query = question.query.unwrap_or_default();
        for part in [question.file.relative, question.path, query] {
            text.extend_from_slice(blocks, part)?;
        }
        for (name, value) in request.headers().filter(|(name, _)| decides(name)) {
            // Neither has a line feed in it, and a name has no colon: the parser saw to that.
            for part in [name, b":", value, b"\n"] {
                text.extend_from_slice(blocks, part)?;
            }
        }
        Ok(Self {
            text,
            name_bytes: question.file.relative.len(),
            path_bytes: question.path.len(),
            query_bytes: question.query.map(<[u8]>::len),
            is_index: question.file.is_index,
            is_get: question.is_get,
        })
    }

    pub(super) fn question(&self) -> Question<'_> {
        let (name, rest) = self.text.split_at(self.name_bytes);
        let (path, rest) = rest.split_at(self.path_bytes);
        Question {
            file: FilePath {
                relative: name,
                is_index: self.is_index,
            },
            path,
            query: self.query_bytes.map(|query_bytes| &rest[..query_bytes]),
            is_get: self.is_get,
        }
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let start = self.name_bytes + self.path_bytes + self.query_bytes.unwrap_or(0);
        self.text[start..]
            .split(|&byte| byte == b'\n')
            .filter_map(|line| {
                let colon = memchr::memchr(b':', line)?;
                Some((&line[..colon], &line[colon + 1..]))
            })
    }
}

impl<'a> Question<'a> {
    pub(super) fn new(file: FilePath<'a>, request: &Request<'a>) -> Self {
        Self {
            file,
            path: request.path(),
            query: request.query(),
            is_get: request.method == Method::Get,
        }
    }
}

// Responses without a file: a redirection, or a refusal in one sentence with the remedy.

const TEXT_PLAIN: Option<FieldValue<'_>> = Some(FieldValue::TEXT_PLAIN);
const CONTENT_IS_TEXT: Field<'_> = (FieldName::CONTENT_TYPE, FieldValue::TEXT_PLAIN);

#[cold]
pub(super) fn redirect_to_directory(
    question: &Question<'_>,
    response: &mut Response<'_>,
    blocks: &BlockPool,
) {
    // The path begins with one slash, so that the location is on this server.
    let mut location = Buffer::new();
    let query = question
        .query
        .map_or([&b""[..], b""], |query| [b"?", query]);
    let is_whole = [question.path, b"/", query[0], query[1]]
        .iter()
        .all(|part| location.extend_from_slice(blocks, part).is_ok());
    if is_whole && let Ok(location) = FieldValue::new(&*location) {
        // Without memory nothing is sent, and the server responds with 503.
        let _ = response.send_with(
            StatusCode::MOVED_PERMANENTLY,
            &[CONTENT_IS_TEXT, (FieldName::LOCATION, location)],
            b"this is a directory: its name ends with a slash\n",
        );
    }
}

pub(super) fn refuse_method(method: Method, response: &mut Response<'_>) -> Flow {
    let sentence = b"files can only be read: use GET or HEAD\n";
    answer_other_method(method, response, READ_ONLY, sentence)
}

#[cold]
pub(super) fn refuse_path(refusal: PathRefusal, response: &mut Response<'_>) -> Flow {
    match refusal {
        PathRefusal::Malformed => {
            // Without memory nothing is sent, and the server responds with 503.
            let _ = response.send(
                StatusCode::BAD_REQUEST,
                TEXT_PLAIN,
                b"this path names no file: write it without . and .. segments, empty ones, and \
                  escaped slashes or zeros\n",
            );
        }
        PathRefusal::Hidden => refuse_open(OpenRefusal::NotFound, response),
        // No response is 503.
        PathRefusal::Memory => {}
    }
    Flow::Done
}

#[cold]
pub(super) fn refuse_open(refusal: OpenRefusal, response: &mut Response<'_>) {
    let (status, text): (StatusCode, &[u8]) = match refusal {
        OpenRefusal::NotFound => (StatusCode::NOT_FOUND, b"no such file\n"),
        OpenRefusal::Forbidden => (
            StatusCode::FORBIDDEN,
            b"the server may not read this file\n",
        ),
        OpenRefusal::Failed => (
            StatusCode::INTERNAL_SERVER_ERROR,
            b"the file cannot be read\n",
        ),
        // The server's own error: 503.
        OpenRefusal::Exhausted | OpenRefusal::NotCached => return,
    };
    // Without memory nothing is sent, and the server responds with 503.
    let _ = response.send(status, TEXT_PLAIN, text);
}

#[cfg(test)]
#[path = "tests/selection.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/version.rs"]
pub(super) mod version_tests;
