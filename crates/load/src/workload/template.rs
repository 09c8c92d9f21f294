//! Requests with places that change: compiled once, written without a heap call.
//!
//! `workload` compiles each class of requests and appends request i to a connection's output. The
//! text is a function of the seed and the number alone.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{seq}` | the number of the request, from 0 |
//! | `{key}` | the key of the request, everywhere in it the same |
//! | `{rand:a:b}` | a whole number from a to b, both included; drawn anew at each place |
//! | `{uuid}` | a random UUID (version 4); drawn anew at each place |
//! | `{file:PATH}` | a line of that file: request i takes line i, and begins again after the last |
//! | `{file}` | the same, of the file named beside the templates |
//! | `{scan_end:N}` | a key 1 to N behind `{key}`: where a scan ends |
//!
//! Braces around anything else are themselves, so JSON needs no escapes; `{{seq}}` is `{seq}` as
//! text.
use super::Lines;
use super::keys::Draws;
use super::{KEY_BYTES_MAX, Sources};
use millpond_mempool::Buffer;
use std::path::{Path, PathBuf};

/// Digits of the largest number there is, with its sign.
const NUMBER_BYTES_MAX: usize = 20;
const UUID_BYTES: usize = 36;

/// A part of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Literal(Box<[u8]>),
    Seq,
    Key,
    /// The key up to which a scan that starts at `Key` reads: 1 to `keys_max` further.
    ScanEnd {
        keys_max: u64,
        place: u64,
    },
    Rand {
        low: i64,
        span: u64,
        place: u64,
    },
    Uuid {
        place: u64,
    },
    Line {
        file: usize,
    },
    /// Length of all pieces behind the head.
    ContentLength,
    /// The value of the key, or of the request's number.
    Value {
        is_by_key: bool,
    },
}

/// The input of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw<'a> {
    pub(super) number: u64,
    pub(super) key: u64,
    pub(super) draws: Draws,
    pub(super) sources: &'a Sources,
}

impl Piece {
    fn bytes_max(&self, sources: &Sources) -> usize {
        match self {
            Self::Literal(text) => text.len(),
            Self::Seq | Self::Rand { .. } | Self::ContentLength => NUMBER_BYTES_MAX,
            Self::Key | Self::ScanEnd { .. } => sources.key_bytes(),
            Self::Uuid { .. } => UUID_BYTES,
            Self::Line { file } => sources.lines[*file].longest_bytes(),
            Self::Value { .. } => sources.values.value_bytes_max(),
        }
    }

    /// Whether it is equally long each time.
    fn has_fixed_length(&self, sources: &Sources) -> bool {
        match self {
            Self::Literal(_) | Self::Key | Self::ScanEnd { .. } | Self::Uuid { .. } => true,
            Self::Value { .. } => sources.values.is_one_size(),
            Self::Seq | Self::Rand { .. } | Self::Line { .. } | Self::ContentLength => false,
        }
    }

    fn len(&self, draw: &Draw<'_>) -> usize {
        match self {
            Self::Literal(text) => text.len(),
            Self::Seq => itoa::Buffer::new().format(draw.number).len(),
            Self::Rand { .. } => itoa::Buffer::new().format(self.random(draw)).len(),
            Self::Key | Self::ScanEnd { .. } => draw.sources.key_bytes(),
            Self::Uuid { .. } => UUID_BYTES,
            Self::Line { file } => draw.sources.lines[*file].line(draw.number).len(),
            Self::Value { is_by_key } => draw.sources.values.len_of(draw.value_of(*is_by_key)),
            Self::ContentLength => 0,
        }
    }

    fn random(&self, draw: &Draw<'_>) -> i64 {
        let Self::Rand { low, span, place } = *self else {
            return 0;
        };
        let above = match span.checked_add(1) {
            Some(limit) => draw.draws.below(place, limit),
            None => draw.draws.at(place),
        };
        low.wrapping_add_unsigned(above)
    }

    fn append(&self, draw: &Draw<'_>, body: &[Self], out: &mut Buffer) {
        match self {
            Self::Literal(text) => out.append_within_capacity(text),
            Self::Seq => append_number(draw.number, out),
            Self::Rand { .. } => append_number(self.random(draw), out),
            Self::ContentLength => {
                let length: usize = body.iter().map(|piece| piece.len(draw)).sum();
                append_number(length, out);
            }
            Self::Key => append_key(draw.key, draw.sources, out),
            &Self::ScanEnd { keys_max, place } => {
                let end = draw.key + 1 + draw.draws.below(place, keys_max);
                append_key(draw.sources.key_at_most(end), draw.sources, out);
            }
            Self::Uuid { place } => out.append_within_capacity(&uuid(draw.draws, *place)),
            Self::Line { file } => {
                out.append_within_capacity(draw.sources.lines[*file].line(draw.number));
            }
            Self::Value { is_by_key } => {
                let values = &draw.sources.values;
                values.write(draw.value_of(*is_by_key), |part| {
                    out.append_within_capacity(part);
                });
            }
        }
    }
}

impl Draw<'_> {
    fn value_of(&self, is_by_key: bool) -> u64 {
        if is_by_key { self.key } else { self.number }
    }
}

fn append_number(number: impl itoa::Integer, out: &mut Buffer) {
    out.append_within_capacity(itoa::Buffer::new().format(number).as_bytes());
}

fn append_key(key: u64, sources: &Sources, out: &mut Buffer) {
    let mut place = [0; KEY_BYTES_MAX];
    out.append_within_capacity(sources.write_key(key, &mut place));
}

/// Random except for the six bits of version and variant (RFC 9562, 5.4).
fn uuid(draws: Draws, place: u64) -> [u8; UUID_BYTES] {
    let high = draws.at(place) & !0xf000 | 0x4000;
    let low = draws.at(place + 1) & !(0b11 << 62) | 0b10 << 62;
    let mut nibbles = (u128::from(high) << 64) | u128::from(low);
    let mut text = [b'-'; UUID_BYTES];
    for (index, letter) in text.iter_mut().enumerate().rev() {
        if ![8, 13, 18, 23].contains(&index) {
            *letter = b"0123456789abcdef"[(nibbles & 0xf) as usize];
            nibbles >>= 4;
        }
    }
    text
}

/// A whole request.
#[derive(Clone, Debug)]
pub(super) struct Template {
    head: Box<[Piece]>,
    body: Box<[Piece]>,
    bytes_max: usize,
}

impl Template {
    /// `head` holds one [`Piece::ContentLength`] where there is a body.
    pub(super) fn new(head: Vec<Piece>, body: Vec<Piece>, sources: &Sources) -> Self {
        let body_bytes = body
            .iter()
            .all(|piece| piece.has_fixed_length(sources))
            .then(|| {
                body.iter()
                    .map(|piece| piece.bytes_max(sources))
                    .sum::<usize>()
            });
        let head = head.into_iter().map(|piece| match (piece, body_bytes) {
            (Piece::ContentLength, Some(bytes)) => literal(bytes.to_string().as_bytes()),
            (piece, _) => piece,
        });
        let (head, body) = (joined(head), joined(body));
        let pieces = head.iter().chain(&body);
        let bytes_max = pieces.map(|piece| piece.bytes_max(sources)).sum();
        Self {
            head,
            body,
            bytes_max,
        }
    }

    /// Room that a request takes at most.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Writes one request; `out` has room for [`Self::bytes_max`].
    pub(super) fn append(&self, draw: &Draw<'_>, out: &mut Buffer) {
        for piece in self.head.iter().chain(&self.body) {
            piece.append(draw, &self.body, out);
        }
    }
}

pub(super) fn literal(text: &[u8]) -> Piece {
    Piece::Literal(text.into())
}

/// Neighbouring literals become one copy.
fn joined(pieces: impl IntoIterator<Item = Piece>) -> Box<[Piece]> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        if let (Some(Piece::Literal(text)), Piece::Literal(more)) = (joined.last_mut(), &piece) {
            *text = [&text[..], more].concat().into();
        } else {
            joined.push(piece);
        }
    }
    joined.into()
}

/// Where a template stands, which decides what braces may mean and what a line may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Target,
    Field,
    Body,
}

/// Compiles texts; remembers what they use.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    default_file: Option<PathBuf>,
    pub(super) lines: Vec<Lines>,
    pub(super) uses_key: bool,
    places: u64,
}

impl Compiler {
    /// `default_file` is what `{file}` stands for.
    pub(super) fn new(default_file: Option<PathBuf>) -> Self {
        Self {
            default_file,
            ..Self::default()
        }
    }

    /// The pieces of `text`; the error says what is wrong with it.
    pub(super) fn compile(&mut self, text: &[u8], place: Place) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::new();
        let (mut plain, mut rest) = (Vec::new(), text);
        while let Some(at) = memchr_brace(rest) {
            plain.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            if let Some((inner, end)) = escaped(rest) {
                plain.extend_from_slice(inner);
                rest = &rest[end..];
                continue;
            }
            let inner = placeholder(rest);
            if let Some(inner) = inner
                && let Some(piece) = self.piece(inner, place)?
            {
                if !plain.is_empty() {
                    pieces.push(literal(&std::mem::take(&mut plain)));
                }
                pieces.push(piece);
                rest = &rest[inner.len() + 2..];
                continue;
            }
            if let (Place::Target, Some(inner)) = (place, inner) {
                return Err(format!(
                    "{{{inner}}} is no placeholder: there are {{seq}}, {{key}}, {{rand:a:b}}, \
                     {{uuid}}, {{file:PATH}} and {{scan_end:N}}; a brace of one's own is written %7B"
                ));
            }
            plain.push(rest[0]);
            rest = &rest[1..];
        }
        plain.extend_from_slice(rest);
        if !plain.is_empty() {
            pieces.push(literal(&plain));
        }
        Ok(pieces)
    }

    /// The meaning of the text between braces, if it has one.
    fn piece(&mut self, inner: &str, place: Place) -> Result<Option<Piece>, String> {
        Ok(Some(match inner {
            "seq" => Piece::Seq,
            "key" => {
                self.uses_key = true;
                Piece::Key
            }
            "uuid" => Piece::Uuid {
                place: self.next_place(),
            },
            "file" => {
                let file = self.default_file.clone();
                self.line(
                    &file.ok_or("{file} needs --template-file FILE, or a name: {file:FILE}")?,
                    place,
                )?
            }
            _ => match inner.split_once(':') {
                Some(("rand", range)) => self.rand(range)?,
                Some(("scan_end", keys)) => self.scan_end(keys)?,
                Some(("file", path)) if !path.is_empty() => self.line(Path::new(path), place)?,
                Some(("file", _)) => return Err("{file:} names no file".to_owned()),
                _ => return Ok(None),
            },
        }))
    }

    pub(super) fn next_place(&mut self) -> u64 {
        // A UUID takes two.
        self.places += 2;
        self.places
    }

    fn rand(&mut self, range: &str) -> Result<Piece, String> {
        let wrong = || {
            format!(
                "{{rand:{range}}} has to name two whole numbers, the lower first, as in {{rand:1:100}}"
            )
        };
        let (low, high) = range.split_once(':').ok_or_else(wrong)?;
        let parsed = |text: &str| text.parse::<i64>().map_err(|_| wrong());
        let (low, high) = (parsed(low)?, parsed(high)?);
        if low > high {
            return Err(wrong());
        }
        Ok(Piece::Rand {
            low,
            span: high.abs_diff(low),
            place: self.next_place(),
        })
    }

    fn scan_end(&mut self, keys: &str) -> Result<Piece, String> {
        self.uses_key = true;
        let keys_max = keys
            .parse()
            .ok()
            .filter(|keys| (1..=u64::from(u32::MAX)).contains(keys));
        Ok(Piece::ScanEnd {
            keys_max: keys_max
                .ok_or_else(|| format!("{{scan_end:{keys}}} takes a number of keys above 0"))?,
            place: self.next_place(),
        })
    }

    fn line(&mut self, path: &Path, place: Place) -> Result<Piece, String> {
        let known = self.lines.iter().position(|lines| lines.path() == path);
        let file = match known {
            Some(file) => file,
            None => {
                self.lines.push(Lines::read(path)?);
                self.lines.len() - 1
            }
        };
        self.lines[file].check(place)?;
        Ok(Piece::Line { file })
    }
}

/// Whether any of it changes from request to request, or is an escape; what cannot be compiled is a
/// template too, so that its mistake is reported.
pub fn is_template(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = memchr_brace(rest) {
        rest = &rest[at..];
        if escaped(rest).is_some() || placeholder(rest).is_some_and(is_known) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

fn is_known(inner: &str) -> bool {
    ["seq", "key", "uuid", "file"].contains(&inner)
        || inner.starts_with("rand:")
        || inner.starts_with("scan_end:")
        || inner.starts_with("file:")
}

fn memchr_brace(text: &[u8]) -> Option<usize> {
    text.iter().position(|&byte| byte == b'{')
}

/// The text between the brace that `text` begins with and the next one, on one line.
fn placeholder(text: &[u8]) -> Option<&str> {
    let inner = text.get(1..)?;
    let end = inner.iter().position(|byte| b"{}\r\n\"".contains(byte))?;
    (inner[end] == b'}').then(|| std::str::from_utf8(&inner[..end]).ok())?
}

/// The text that an escaped placeholder stands for, and where the escape ends.
fn escaped(text: &[u8]) -> Option<(&[u8], usize)> {
    let inner = placeholder(text.strip_prefix(b"{")?)?;
    let end = inner.len() + 4;
    (is_known(inner) && text.get(end - 1) == Some(&b'}')).then(|| (&text[1..end - 1], end))
}

#[cfg(test)]
#[path = "tests/template.rs"]
mod tests;
