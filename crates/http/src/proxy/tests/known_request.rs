use super::*;
use crate::head::HeadFields;
use crate::limits::Limits;
use crate::parse::{Parsed, parse_request_head};
use crate::proxy::request_head::ViaName;
use crate::proxy::response_head::FieldChanges;
use crate::request::RequestBody;
use millpond_io::Peer;
use millpond_mempool::PoolMode;
use proptest::prelude::*;
use proptest::sample::select;

/// Parts of a request; few of each, so that they repeat.
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

/// Bytes the upstream gets, and whether they ask for another protocol; or the refusal.
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

/// Goal: a head written once is found again under another target, so that the test above is meaningful.
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
