//! Requests as other parsers read them. Each way to disagree is a class with an entry in the table
//! `tests/data/differences.txt`, which names the side that is right; a disagreement without an entry is a finding.

use super::table::{Entry, entries};
use millpond_http::{
    BodyDecoder, HeadFields, Limits, ParseError, Parsed, Version, parse_request_head,
};

const TABLE: &str = include_str!("../data/differences.txt");

/// Result of each side, in the table's terms.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Class {
    pub(crate) with: &'static str,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

/// The table's entries.
pub(crate) fn explanations() -> Vec<Entry> {
    entries(TABLE, &["with", "ours", "theirs", "right", "why"])
}

impl Class {
    pub(crate) fn is_explained_by(&self, entry: &Entry) -> bool {
        let has = |key: &str, word: &str| {
            let mut words = entry.value(key).split(", ");
            words.any(|known| known == word || known == "any")
        };
        has("with", self.with) && has("ours", &self.ours) && has("theirs", &self.theirs)
    }
}

/// The name of an error's variant.
pub(crate) fn variant(error: &impl std::fmt::Debug) -> String {
    let text = format!("{error:?}");
    let end = text
        .find(|c: char| !c.is_alphanumeric())
        .unwrap_or(text.len());
    text[..end].to_owned()
}

/// All that httparse returns about a request.
#[derive(Debug, Eq, PartialEq)]
struct Parts {
    method: Vec<u8>,
    target: Vec<u8>,
    minor_version: u8,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    head_bytes: usize,
}

fn ours(bytes: &[u8]) -> Result<Option<Parts>, ParseError> {
    let mut fields = HeadFields::new();
    let Parsed::Complete(head) = parse_request_head(bytes, &Limits::default(), &mut fields)? else {
        return Ok(None);
    };
    let pairs = fields
        .spans()
        .iter()
        .map(|f| (f.name.of(bytes).to_vec(), f.value.of(bytes).to_vec()));
    Ok(Some(Parts {
        method: head.method_token.of(bytes).to_vec(),
        target: head.target.of(bytes).to_vec(),
        minor_version: u8::from(head.version == Version::Http11),
        fields: pairs.collect(),
        head_bytes: head.head_bytes,
    }))
}

fn theirs(bytes: &[u8]) -> Result<Option<Parts>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; 200];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = request.parse(bytes)? else {
        return Ok(None);
    };
    let pairs = request
        .headers
        .iter()
        .map(|h| (h.name.as_bytes().to_vec(), h.value.to_vec()));
    Ok(Some(Parts {
        fields: pairs.collect(),
        method: request.method.unwrap_or_default().as_bytes().to_vec(),
        target: request.path.unwrap_or_default().as_bytes().to_vec(),
        minor_version: request.version.unwrap_or_default(),
        head_bytes,
    }))
}

/// How httparse reads these bytes otherwise, if it does. An end is put behind them, so that neither
/// side can still wait.
pub(crate) fn from_httparse(bytes: &[u8]) -> Option<Class> {
    let bytes = [bytes, b"\r\n\r\n"].concat();
    let word = |parts: &Option<Parts>| match parts {
        Some(_) => "accepts".to_owned(),
        None => "waits".to_owned(),
    };
    let (ours, theirs) = match (ours(&bytes), theirs(&bytes)) {
        (Err(_), Err(_)) => return None,
        (Ok(ours), Ok(theirs)) if ours == theirs => return None,
        (Ok(Some(_)), Ok(Some(_))) => ("accepts".to_owned(), "reads otherwise".to_owned()),
        (Ok(ours), Ok(theirs)) => (word(&ours), word(&theirs)),
        (Err(error), Ok(theirs)) => (variant(&error), word(&theirs)),
        (Ok(ours), Err(error)) => (word(&ours), variant(&error)),
    };
    let with = "httparse";
    Some(Class { with, ours, theirs })
}

/// A request as it comes out of a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Request {
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// The requests that we find in a stream, and how it ends: `accepts` behind a whole request, `waits`
/// within one, `closes` when a request was the last, else the name of a fault.
pub(crate) fn requests(bytes: &[u8]) -> (Vec<Request>, String) {
    let limits = Limits::default();
    let mut fields = HeadFields::new();
    let (mut found, mut rest) = (Vec::new(), bytes);
    loop {
        let head = match parse_request_head(rest, &limits, &mut fields) {
            Ok(Parsed::Complete(head)) => head,
            Ok(Parsed::Partial) if rest.is_empty() => return (found, "accepts".to_owned()),
            Ok(Parsed::Partial) => return (found, "waits".to_owned()),
            Err(error) => return (found, variant(&error)),
        };
        let mut request = Request {
            method: head.method_token.of(rest).to_vec(),
            target: head.target.of(rest).to_vec(),
            body: Vec::new(),
        };
        rest = &rest[head.head_bytes..];
        if let Some(mut decoder) = BodyDecoder::new(head.framing, &limits) {
            loop {
                let step = match decoder.decode(rest) {
                    Ok(step) => step,
                    Err(error) => return (found, variant(&error)),
                };
                request.body.extend_from_slice(step.data);
                rest = &rest[step.consumed_bytes..];
                if step.is_complete {
                    break;
                }
                if rest.is_empty() {
                    return (found, "waits".to_owned());
                }
            }
        }
        found.push(request);
        if !head.keep_alive {
            return (found, "closes".to_owned());
        }
    }
}

/// Panics on a disagreement that the table does not explain.
pub(crate) fn run(bytes: &[u8]) {
    if let Some(class) = from_httparse(bytes) {
        let is_explained = explanations()
            .iter()
            .any(|entry| class.is_explained_by(entry));
        assert!(is_explained, "{class:?}: {}", bytes.escape_ascii());
    }
}
