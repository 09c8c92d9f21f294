//! Requests whose fields were written for an upstream before: they are copied.
//!
//! On the path: `service` asks for each request's head here; `request_head` writes what is not known.
//! A client sends the same fields with other targets, so what is remembered is all behind the request
//! line, and the line is written for each.
//!
//! Absent on purpose: requests of which more than fields, client and configuration decides what is
//! written: other forms of target than the origin's, Max-Forwards, Upgrade and Expect.

use super::client_peer::ClientPeer;
use super::failure::{Failure, Refused};
use super::field_rule::Nominated;
use super::head_memory::HeadMemory;
use super::key::forwards_left;
use super::request_head::{
    ForwardedFields, OutgoingHead, RequestWay, encode_request_head, wanted_protocol,
};
use super::upgrade::UpgradeProtocols;
use crate::head::Version;
use crate::method::Method;
use crate::request::Request;
use millpond_mempool::BlockPool;

/// All that decides what is written of the fields, but the fields.
#[derive(Clone, Debug)]
pub(super) struct RequestKey<C = ClientPeer> {
    client: C,
    version: Version,
    is_tls: bool,
    fields: ForwardedFields,
}

impl RequestKey<&ClientPeer> {
    /// Whether a key that is kept gives the same.
    fn is(&self, kept: &RequestKey) -> bool {
        self.client.is_told_like(&kept.client)
            && self.version == kept.version
            && self.is_tls == kept.is_tls
            && self.fields == kept.fields
    }

    fn to_keep(&self) -> RequestKey {
        RequestKey {
            client: self.client.clone(),
            version: self.version,
            is_tls: self.is_tls,
            fields: self.fields,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct KnownRequests {
    /// The result: how long the host is with which what was written begins.
    memory: HeadMemory<RequestKey, usize>,
}

impl KnownRequests {
    pub(super) fn new() -> Self {
        Self {
            memory: HeadMemory::new(),
        }
    }

    /// The head for the upstream, and whether it asks for another protocol, one of `upgrades`. What
    /// of `way` the request decides is found out here.
    pub(super) fn head_of<'h>(
        &mut self,
        blocks: &BlockPool,
        request: &Request<'h>,
        mut way: RequestWay<'h>,
        upgrades: &UpgradeProtocols,
    ) -> Result<(OutgoingHead, bool), Refused> {
        let asked = asked(request, &way);
        if let Some((received, key)) = &asked
            && let Some((written, host_bytes)) =
                self.memory
                    .find(received, |kept| key.is(kept), key.client.salt)
        {
            let head = OutgoingHead::of_known_fields(blocks, request, written, host_bytes)?;
            return Ok((head, false));
        }
        if way.via_name.is_in(request) {
            return Err(Failure::Loop.into());
        }
        let nominated =
            Nominated::of(request.bytes, request.fields).map_err(|_| Failure::TooManyOptions)?;
        way.max_forwards = match forwards_left(request) {
            Some(0) => return Err(Refused::NoForwardsLeft),
            left => left.map(|left| left - 1),
        };
        way.upgrade = wanted_protocol(request, &nominated, upgrades);
        let head = encode_request_head(blocks, request, &nominated, &way)?;
        // With other methods the same fields may ask for another protocol.
        if let Some((received, key)) = asked.filter(|_| !nominated.has_upgrade) {
            let salt = key.client.salt;
            let (written, host_bytes) = head.fields();
            self.memory
                .remember((received, key.to_keep(), salt), written, host_bytes);
        }
        Ok((head, way.upgrade.is_some()))
    }
}

/// The fields as received, down to the empty line, and the key, if nothing else decides.
#[inline]
fn asked<'h>(
    request: &Request<'h>,
    way: &RequestWay<'h>,
) -> Option<(&'h [u8], RequestKey<&'h ClientPeer>)> {
    let first = request.fields.spans().first()?;
    let is_usual = request.target().as_bytes().first() == Some(&b'/')
        && !matches!(request.method, Method::Options | Method::Trace)
        && !request.head.expects_continue;
    let client = way.client.filter(|_| is_usual)?;
    let key = RequestKey {
        client,
        version: request.version(),
        is_tls: way.is_tls,
        fields: way.fields,
    };
    Some((request.bytes.get(first.name.start()..)?, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HeadFields;
    use crate::limits::Limits;
    use crate::parse::{Parsed, parse_request_head};
    use crate::proxy::field_change::FieldChanges;
    use crate::proxy::via::ViaName;
    use crate::request::RequestBody;
    use millpond_io::Peer;
    use millpond_mempool::PoolMode;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// What one request is made of; few of each, so that they come again.
    #[derive(Clone, Debug)]
    struct Asked {
        line: &'static str,
        fields: Vec<&'static str>,
        peer: usize,
        is_tls: bool,
        told: &'static str,
        allows_upgrades: bool,
    }

    fn any_request() -> impl Strategy<Value = Asked> {
        let lines = vec![
            "GET /a HTTP/1.1",
            "GET /b?c=d HTTP/1.1",
            "GET http://other/ HTTP/1.1",
            "GET /a HTTP/1.0",
            "PUT /a HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "TRACE /a HTTP/1.1",
        ];
        let fields = select(vec![
            "X-Mine: 1",
            "X-Mine: 2",
            "Connection: keep-alive",
            "Connection: x-mine, upgrade",
            "Upgrade: websocket",
            "Expect: 100-continue",
            "Content-Length: 3",
            "X-Forwarded-For: 1.1.1.1",
            "Via: 1.0 a",
            "Via: 1.0 a, 1.1 millpond-0000000000000000",
            "Max-Forwards: 5",
            "Max-Forwards: 0",
        ]);
        let lists = proptest::collection::vec(proptest::collection::vec(fields, 0..3), 1..4);
        let others = (0..4_usize, any::<bool>(), any::<bool>());
        let told = select(vec!["both", "none"]);
        let one = (select(lines), 0..3_usize, others, told);
        (lists, one).prop_map(
            |(lists, (line, list, (peer, is_tls, allows_upgrades), told))| Asked {
                line,
                fields: lists[list % lists.len()].clone(),
                peer,
                is_tls,
                told,
                allows_upgrades,
            },
        )
    }

    /// What the upstream gets, and whether another protocol is asked for; or the refusal.
    fn written(known: &mut KnownRequests, asked: &Asked) -> Option<String> {
        let fields = asked.fields.join("\r\n");
        let end = if fields.is_empty() { "" } else { "\r\n" };
        let text = format!("{}\r\nHost: h\r\n{fields}{end}\r\n", asked.line);
        let mut fields = HeadFields::new();
        let parsed = parse_request_head(text.as_bytes(), &Limits::default(), &mut fields);
        let Ok(Parsed::Complete(head)) = parsed else {
            return None;
        };
        let request = Request {
            method: head.method,
            bytes: text.as_bytes(),
            head: &head,
            fields: &fields,
            body: RequestBody::Received(&[]),
        };
        let peers = [
            "192.0.2.1:5",
            "192.0.2.2:5",
            "10.0.0.1:5",
            "[2001:db8::1]:5",
        ];
        let peer = Peer::Inet(peers[asked.peer].parse().unwrap());
        let client = ClientPeer::new(peer, None, &["10.0.0.0/8".parse().unwrap()]);
        let via_name = ViaName::of_bits(0);
        let way = RequestWay {
            via_name: &via_name,
            client: Some(&client),
            is_tls: asked.is_tls,
            fields: asked.told.parse().unwrap(),
            upgrade: None,
            max_forwards: None,
            changes: &FieldChanges::default(),
        };
        let blocks = BlockPool::new("test", PoolMode::Off);
        let upgrades = match asked.allows_upgrades {
            true => UpgradeProtocols::websocket(),
            false => UpgradeProtocols::default(),
        };
        Some(match known.head_of(&blocks, &request, way, &upgrades) {
            Ok((head, may_upgrade)) => {
                let bytes = head.with_host(&blocks, head.client_host()).unwrap();
                format!("{may_upgrade} {}", String::from_utf8_lossy(&bytes))
            }
            Err(Refused::NoForwardsLeft) => "no forwards left".to_owned(),
            Err(Refused::Failure(failure)) => format!("{failure:?}"),
        })
    }

    proptest! {
        /// Goal: whatever came before, the upstream gets what it would get if this request were the
        /// first; by other clients, over other schemes, after other fields or another configuration.
        #[test]
        fn what_is_known_is_what_would_be_written(
            requests in proptest::collection::vec(any_request(), 1..8),
            again in proptest::collection::vec(0..8_usize, 0..24),
        ) {
            let mut known = KnownRequests::new();
            let all = (0..requests.len()).chain(again.iter().map(|index| index % requests.len()));
            for index in all {
                let asked = &requests[index];
                let anew = written(&mut KnownRequests::new(), asked);
                prop_assert_eq!(written(&mut known, asked), anew);
            }
        }
    }

    /// Goal: what was written once is found again under another target, so that the test above says
    /// something.
    #[test]
    fn fields_are_known_again() {
        let mut known = KnownRequests::new();
        let asked = Asked {
            line: "GET /a HTTP/1.1",
            fields: vec!["X-Mine: 1", "Connection: keep-alive"],
            peer: 0,
            is_tls: false,
            told: "both",
            allows_upgrades: true,
        };
        let text = written(&mut known, &asked).unwrap();
        let received = b"Host: h\r\nX-Mine: 1\r\nConnection: keep-alive\r\n\r\n";
        let client = ClientPeer::new(Peer::Inet("192.0.2.1:9".parse().unwrap()), None, &[]);
        let key = RequestKey {
            client: &client,
            version: Version::Http11,
            is_tls: false,
            fields: ForwardedFields::default(),
        };
        let found = known
            .memory
            .find(received, |kept| key.is(kept), key.client.salt);
        assert!(found.is_some());
        let other = Asked {
            line: "GET /other?x HTTP/1.1",
            ..asked
        };
        let expected = text.replace("GET /a ", "GET /other?x ");
        assert_eq!(written(&mut known, &other), Some(expected));
    }
}
