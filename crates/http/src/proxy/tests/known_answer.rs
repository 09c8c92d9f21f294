use super::*;
use crate::head::{HeadFields, RequestHead, Version};
use crate::limits::Limits;
use crate::log::FixedHeaderLines;
use crate::method::Method;
use crate::parse::{Parsed, parse_response_head};
use millpond_mempool::{BlockPool, Buffer, PoolMode};
use proptest::prelude::*;
use proptest::sample::select;

/// Parts of a response; few of each, so that they repeat.
#[derive(Clone, Debug)]
struct Answered {
    text: String,
    method: Method,
    version: Version,
    keep_alive: bool,
    is_draining: bool,
    is_body_unread: bool,
}

fn any_answer() -> impl Strategy<Value = Answered> {
    let line = select(vec![
        "HTTP/1.1 200 OK",
        "HTTP/1.0 200 OK",
        "HTTP/1.1 204 No Content",
        "HTTP/1.1 304 Same",
    ]);
    let field = select(vec![
        "Date: Sun, 06 Nov 1994 08:49:37 GMT",
        "Date: Sun, 06 Nov 1994 08:49:38 GMT",
        "Content-Length: 5",
        "Content-Length: 0",
        "Transfer-Encoding: chunked",
        "Connection: keep-alive",
        "Connection: close, x-mine",
        "X-Mine: 1",
        "Trailer: x-sum",
    ]);
    let fields = proptest::collection::vec(field, 0..4);
    let method = select(vec![Method::Get, Method::Head]);
    let version = select(vec![Version::Http10, Version::Http11]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (line, fields, method, version, flags).prop_map(|(line, fields, method, version, flags)| {
        let (keep_alive, is_draining, is_body_unread) = flags;
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        Answered {
            text: format!("{line}\r\n{fields}\r\n"),
            method,
            version,
            keep_alive,
            is_draining,
            is_body_unread,
        }
    })
}

/// Bytes the client gets after the existing output, and how the response goes on.
fn written(known: &mut KnownResponses, answered: &Answered) -> Option<String> {
    let (text, method) = (answered.text.as_bytes(), answered.method);
    let mut fields = HeadFields::new();
    let parsed = parse_response_head(text, &Limits::default(), &mut fields);
    let Ok(Parsed::Complete(head)) = parsed else {
        return None;
    };
    let asked = RequestHead {
        method,
        version: answered.version,
        keep_alive: answered.keep_alive,
        ..RequestHead::EMPTY
    };
    let blocks = BlockPool::new("test", PoolMode::Off);
    let (mut output, mut standing_lines) = (Buffer::new(), FixedHeaderLines::new());
    output.extend_from_slice(&blocks, b"before").unwrap();
    let manner = ResponseFraming::of(&asked, answered.is_draining);
    let mut response = Response {
        output: &mut output,
        blocks: &blocks,
        standing_lines: &mut standing_lines,
        manner: manner.closing_if_answered(answered.is_body_unread),
        sent: None,
        outgoing: Outgoing::Whole,
        failure: None,
        wire: None,
    };
    let answer = ReceivedHead {
        bytes: text,
        head: &head,
        fields: &fields,
        framing: head.framing(method),
    };
    let passes_trailers = known
        .forward(&mut response, &answer, &FieldChanges::default())
        .ok()?;
    let (sent, manner, outgoing) = (response.sent, response.manner, response.outgoing);
    let output = String::from_utf8_lossy(&output);
    // A date that was added is that of the moment.
    let has_date = answered.text.contains("Date:");
    let lines = output
        .lines()
        .filter(|line| has_date || !line.starts_with("Date: "));
    let lines: Vec<&str> = lines.collect();
    Some(format!(
        "{sent:?} {manner:?} {outgoing:?} {passes_trailers} {lines:?}"
    ))
}

proptest! {
    /// Goal: whatever came before, the client gets what it would get if this response were the
    /// first; other methods, versions and ends of connections included.
    #[test]
    fn what_is_known_is_what_would_be_written(
        answers in proptest::collection::vec(any_answer(), 1..8),
        again in proptest::collection::vec(0..8_usize, 0..24),
    ) {
        let mut known = KnownResponses::new();
        let all = (0..answers.len()).chain(again.iter().map(|index| index % answers.len()));
        for index in all {
            let answered = &answers[index];
            let anew = written(&mut KnownResponses::new(), answered);
            prop_assert_eq!(written(&mut known, answered), anew);
        }
    }
}

/// Goal: a head that came with a date is known, one without is not, since ours would go stale.
#[test]
fn heads_with_a_date_are_known() {
    for (date, is_known) in [("Date: d\r\n", true), ("", false)] {
        let answered = Answered {
            text: format!("HTTP/1.1 200 OK\r\n{date}Content-Length: 5\r\n\r\n"),
            method: Method::Get,
            version: Version::Http11,
            keep_alive: true,
            is_draining: false,
            is_body_unread: false,
        };
        let mut known = KnownResponses::new();
        written(&mut known, &answered).unwrap();
        let key = ResponseKey {
            manner: ResponseFraming::default(),
            framing: Framing::Length(5),
        };
        let found = known
            .memory
            .find(answered.text.as_bytes(), |it| *it == key, 0);
        assert_eq!(found.is_some(), is_known, "{date}");
    }
}
