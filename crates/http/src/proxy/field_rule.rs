//! What a proxy does with a field, by its name: pass it on, drop it, or write it itself.
//!
//! On the path: `request_head` and `response_head` ask about every field line.
//!
//! Names are compared with `_` taken for `-`. A server behind a CGI-like interface reads `X_Real_IP`
//! and `X-Real-IP` as one variable: a proxy that drops only one of them lets the client say what the proxy
//! says. The spelling with `_` of a field that has a rule is dropped, from trusted peers too: these pass on
//! what their clients send, and write the field itself with `-`.
//!
//! Absent on purpose: a way to pass framing or hop-by-hop fields on (RFC 9110 7.6.1).

use crate::head::{FieldSpan, HeadFields};

/// What becomes of a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FieldRule {
    /// It is between client and server.
    PassOn,
    /// It is about one connection, or about framing, which is written anew.
    Drop,
    /// Its options name further fields to drop.
    Connection,
    Host,
    Via,
    Forwarded,
    ForwardedFor,
    ForwardedProto,
    ForwardedHost,
    /// Whatever else proxies tell about clients.
    ForwardedOther,
    MaxForwards,
    Date,
    /// What the sender takes: chunks anyway, and perhaps trailers.
    Te,
    /// Which fields will follow the body.
    Trailer,
}

/// A byte of a name, for comparing: in lower case, and `-` for `_`.
#[inline(always)]
const fn folded(byte: u8) -> u8 {
    match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    }
}

/// Field names are the same without regard to case, and to `_` for `-`. The length is known where it
/// is compiled, so that all bytes are compared at once.
#[inline]
pub(super) fn is<const LENGTH: usize>(name: &[u8], lower_case: &[u8; LENGTH]) -> bool {
    let Ok(name) = <&[u8; LENGTH]>::try_from(name) else {
        return false;
    };
    let mut differing = 0;
    for (&byte, &expected) in name.iter().zip(lower_case) {
        differing |= folded(byte) ^ expected;
    }
    differing == 0
}

pub(super) fn begins<const LENGTH: usize>(name: &[u8], lower_case: &[u8; LENGTH]) -> bool {
    name.get(..LENGTH)
        .is_some_and(|begin| is(begin, lower_case))
}

/// The same for names of any length.
pub(super) fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|(&one, &other)| folded(one) == folded(other))
}

impl FieldRule {
    #[inline]
    pub(super) fn of(name: &[u8]) -> Self {
        match Self::of_either_spelling(name) {
            Self::PassOn => Self::PassOn,
            _ if name.contains(&b'_') => Self::Drop,
            rule => rule,
        }
    }

    /// By length first: most names that pass on differ in it from all that do not.
    #[inline]
    fn of_either_spelling(name: &[u8]) -> Self {
        match name.len() {
            2 if is(name, b"te") => Self::Te,
            3 if is(name, b"via") => Self::Via,
            4 if is(name, b"host") => Self::Host,
            4 if is(name, b"date") => Self::Date,
            5 if is(name, b"proxy") => Self::Drop,
            6 if is(name, b"expect") => Self::Drop,
            7 if is(name, b"trailer") => Self::Trailer,
            7 if is(name, b"upgrade") => Self::Drop,
            9 if is(name, b"forwarded") => Self::Forwarded,
            9 if is(name, b"x-real-ip") => Self::ForwardedOther,
            10 if is(name, b"connection") => Self::Connection,
            10 if is(name, b"keep-alive") => Self::Drop,
            12 if is(name, b"max-forwards") => Self::MaxForwards,
            14 if is(name, b"content-length") || is(name, b"http2-settings") => Self::Drop,
            15 if is(name, b"x-forwarded-for") => Self::ForwardedFor,
            16 if is(name, b"x-forwarded-host") => Self::ForwardedHost,
            17 if is(name, b"transfer-encoding") => Self::Drop,
            17 if is(name, b"x-forwarded-proto") => Self::ForwardedProto,
            _ => Self::by_beginning(name),
        }
    }

    /// Of a name that no rule is about as a whole.
    #[inline]
    fn by_beginning(name: &[u8]) -> Self {
        match name.first() {
            // Proxy-Connection, Proxy-Authorization and what else is meant for a proxy.
            Some(b'p' | b'P') if begins(name, b"proxy-") => Self::Drop,
            Some(b'x' | b'X') if begins(name, b"x-forwarded-") => Self::ForwardedOther,
            _ => Self::PassOn,
        }
    }
}

/// Whether a value of `TE` says that trailers are welcome (RFC 9110 10.1.4).
pub(super) fn welcomes_trailers(value: &[u8]) -> bool {
    let mut options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    options.any(|option| is(option, b"trailers"))
}

/// Options of `Connection` that are looked at; nobody has use for more.
const OPTIONS_MAX: usize = 16;

/// The fields that a head's `Connection` names. Nearly always none: they are counted, and looked for
/// again where there are any.
pub(super) struct Nominated<'h> {
    head: &'h [u8],
    fields: &'h HeadFields,
    count: usize,
    pub(super) has_upgrade: bool,
    /// It names others than those that every message has to name.
    pub(super) has_fields: bool,
}

/// More options than any sender has use for: each costs a look at every field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooManyOptions;

impl<'h> Nominated<'h> {
    pub(super) fn of(head: &'h [u8], fields: &'h HeadFields) -> Result<Self, TooManyOptions> {
        let mut nominated = Self {
            head,
            fields,
            count: 0,
            has_upgrade: false,
            has_fields: false,
        };
        for field in fields.spans() {
            if is(field.name.of(head), b"connection") {
                nominated.add(field.value.of(head))?;
            }
        }
        Ok(nominated)
    }

    #[cold]
    fn add(&mut self, value: &[u8]) -> Result<(), TooManyOptions> {
        for option in options(value) {
            let is_upgrade = is(option, b"upgrade");
            self.has_upgrade |= is_upgrade;
            self.has_fields |= !is_upgrade && !is(option, b"te");
            self.count += 1;
        }
        match self.count > OPTIONS_MAX {
            true => Err(TooManyOptions),
            false => Ok(()),
        }
    }

    #[inline]
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.count > 0 && self.finds(name)
    }

    #[cold]
    fn finds(&self, name: &[u8]) -> bool {
        let is_connection = |field: &&FieldSpan| is(field.name.of(self.head), b"connection");
        let mut found = self.fields.spans().iter().filter(is_connection);
        found.any(|field| {
            options(field.value.of(self.head)).any(|nominated| is_same_name(nominated, name))
        })
    }
}

/// The options of one `Connection` that name a field.
fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    options.filter(|option| {
        let is_known = is(option, b"close") || is(option, b"keep-alive");
        !option.is_empty() && !is_known
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::parse::{Parsed, parse_request_head};

    /// Goal: every field of RFC 9110 7.6.1 is dropped in any case and spelling, and its neighbours
    /// are not.
    #[test]
    fn rules_know_every_spelling() {
        for name in [
            "Upgrade",
            "Keep-Alive",
            "keep_alive",
            "Transfer-Encoding",
            "transfer_encoding",
            "Content-Length",
            "CONTENT_LENGTH",
            "Proxy-Connection",
            "proxy_authorization",
            "Proxy",
            "Expect",
            "HTTP2-Settings",
            "X_Forwarded_For",
            "X-Forwarded_Host",
            "x_forwarded_proto",
            "X_Forwarded_Port",
            "x_real-ip",
            "Max_Forwards",
        ] {
            assert_eq!(FieldRule::of(name.as_bytes()), FieldRule::Drop, "{name}");
        }
        for (name, rule) in [
            ("X-Forwarded-For", FieldRule::ForwardedFor),
            ("X-Forwarded-Port", FieldRule::ForwardedOther),
            ("x-real-ip", FieldRule::ForwardedOther),
            ("vIA", FieldRule::Via),
            ("connection", FieldRule::Connection),
            ("te", FieldRule::Te),
            ("TRAILER", FieldRule::Trailer),
        ] {
            assert_eq!(FieldRule::of(name.as_bytes()), rule, "{name}");
        }
        for name in [
            "Accept",
            "Content-Type",
            "Trailers",
            "Proximity",
            "X-Forward",
            "Cookie",
            "ETag",
        ] {
            assert_eq!(FieldRule::of(name.as_bytes()), FieldRule::PassOn, "{name}");
        }
    }

    /// Goal: only the one word says it, wherever it stands in the list.
    #[test]
    fn trailers_are_welcome_where_te_says_so() {
        for (value, is_welcome) in [
            ("trailers", true),
            ("gzip;q=0.5, Trailers ", true),
            ("gzip", false),
            ("trailers;q=0", false),
            ("", false),
        ] {
            assert_eq!(welcomes_trailers(value.as_bytes()), is_welcome, "{value}");
        }
    }

    /// Goal: the options of all Connection fields are found, and a flood of them is refused.
    #[test]
    fn nominated_fields_are_found() {
        let mut fields = HeadFields::new();
        let mut parse = |head: &str| {
            let parsed = parse_request_head(head.as_bytes(), &Limits::default(), &mut fields);
            assert!(matches!(parsed, Ok(Parsed::Complete(_))), "{head}");
            fields.clone()
        };
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-One ,\r\nConnection: Upgrade\r\n\r\n";
        let found = parse(head);
        let nominated = Nominated::of(head.as_bytes(), &found).unwrap();
        assert!(
            nominated.has(b"x-one")
                && nominated.has(b"X_One")
                && nominated.has(b"upgrade")
                && nominated.has_upgrade
        );
        assert!(!nominated.has(b"close") && !nominated.has(b"x-two"));
        assert!(nominated.has_fields);
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, upgrade, keep-alive\r\n\r\n";
        let found = parse(head);
        let nominated = Nominated::of(head.as_bytes(), &found).unwrap();
        assert!(nominated.has(b"te") && !nominated.has_fields);
        let many: Vec<String> = (0..=OPTIONS_MAX).map(|n| format!("x{n}")).collect();
        let head = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n",
            many.join(",")
        );
        assert!(Nominated::of(head.as_bytes(), &parse(&head)).is_err());
    }
}
