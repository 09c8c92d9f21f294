//! What a proxy does with a field, by its name: pass it on, drop it, or write it itself.
//!
//! On the path: `request_head` and `response_head` ask about every field line.
//!
//! Names are compared with `_` taken for `-`. A server behind a CGI-like interface reads `X_Real_IP`
//! and `X-Real-IP` as one variable: whoever drops only one of them lets the client say what the proxy
//! says. Nobody sends the other spelling of a field that matters here in good faith.
//!
//! Absent on purpose: a way to pass framing or hop-by-hop fields on (RFC 9110 7.6.1).

use crate::head::HeadFields;

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
}

/// Field names are the same without regard to case, and to `_` for `-`.
fn is(name: &[u8], lower_case: &[u8]) -> bool {
    let same = |(&byte, &expected): (&u8, &u8)| match byte {
        b'_' => expected == b'-',
        byte => byte.to_ascii_lowercase() == expected,
    };
    name.len() == lower_case.len() && name.iter().zip(lower_case).all(same)
}

fn begins(name: &[u8], lower_case: &[u8]) -> bool {
    name.get(..lower_case.len())
        .is_some_and(|begin| is(begin, lower_case))
}

impl FieldRule {
    /// By length first: most names that pass on differ in it from all that do not.
    pub(super) fn of(name: &[u8]) -> Self {
        let rules: &[(&[u8], Self)] = match name.len() {
            2 => &[(b"te", Self::Drop)],
            3 => &[(b"via", Self::Via)],
            4 => &[(b"host", Self::Host), (b"date", Self::Date)],
            5 => &[(b"proxy", Self::Drop)],
            6 => &[(b"expect", Self::Drop)],
            7 => &[(b"trailer", Self::Drop), (b"upgrade", Self::Drop)],
            9 => &[
                (b"forwarded", Self::Forwarded),
                (b"x-real-ip", Self::ForwardedOther),
            ],
            10 => &[
                (b"connection", Self::Connection),
                (b"keep-alive", Self::Drop),
            ],
            12 => &[(b"max-forwards", Self::MaxForwards)],
            14 => &[
                (b"content-length", Self::Drop),
                (b"http2-settings", Self::Drop),
            ],
            15 => &[(b"x-forwarded-for", Self::ForwardedFor)],
            16 => &[(b"x-forwarded-host", Self::ForwardedHost)],
            17 => &[
                (b"transfer-encoding", Self::Drop),
                (b"x-forwarded-proto", Self::ForwardedProto),
            ],
            _ => &[],
        };
        for &(lower_case, rule) in rules {
            if is(name, lower_case) {
                return rule;
            }
        }
        match name.first() {
            // Proxy-Connection, Proxy-Authorization and what else is meant for a proxy.
            Some(b'p' | b'P') if begins(name, b"proxy-") => Self::Drop,
            Some(b'x' | b'X') if begins(name, b"x-forwarded-") => Self::ForwardedOther,
            _ => Self::PassOn,
        }
    }
}

/// Options of `Connection` that are looked at; nobody has use for more.
const OPTIONS_MAX: usize = 16;

/// The fields that a head's `Connection` names.
pub(super) struct Nominated<'h> {
    names: [&'h [u8]; OPTIONS_MAX],
    count: usize,
    pub(super) has_upgrade: bool,
}

/// More options than any sender has use for: each costs a look at every field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooManyOptions;

impl<'h> Nominated<'h> {
    pub(super) fn of(head: &'h [u8], fields: &HeadFields) -> Result<Self, TooManyOptions> {
        let mut nominated = Self {
            names: [&[]; OPTIONS_MAX],
            count: 0,
            has_upgrade: false,
        };
        for field in fields.spans() {
            if FieldRule::of(field.name.of(head)) == FieldRule::Connection {
                nominated.add(field.value.of(head))?;
            }
        }
        Ok(nominated)
    }

    fn add(&mut self, value: &'h [u8]) -> Result<(), TooManyOptions> {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            let is_known = is(option, b"close") || is(option, b"keep-alive");
            if option.is_empty() || is_known {
                continue;
            }
            self.has_upgrade |= is(option, b"upgrade");
            *self.names.get_mut(self.count).ok_or(TooManyOptions)? = option;
            self.count += 1;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn has(&self, name: &[u8]) -> bool {
        let names = &self.names[..self.count];
        names
            .iter()
            .any(|nominated| nominated.eq_ignore_ascii_case(name))
    }
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
            "TE",
            "Trailer",
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
        ] {
            assert_eq!(FieldRule::of(name.as_bytes()), FieldRule::Drop, "{name}");
        }
        for (name, rule) in [
            ("X_Forwarded_For", FieldRule::ForwardedFor),
            ("X-Forwarded-Port", FieldRule::ForwardedOther),
            ("x_real-ip", FieldRule::ForwardedOther),
            ("vIA", FieldRule::Via),
            ("connection", FieldRule::Connection),
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
        assert!(nominated.has(b"x-one") && nominated.has(b"upgrade") && nominated.has_upgrade);
        assert!(!nominated.has(b"close") && !nominated.has(b"x-two"));
        let many: Vec<String> = (0..=OPTIONS_MAX).map(|n| format!("x{n}")).collect();
        let head = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n",
            many.join(",")
        );
        assert!(Nominated::of(head.as_bytes(), &parse(&head)).is_err());
    }
}
