//! The served description against the server: everything described is produced, and everything produced is described.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{Client, Reply, TestServer, patient_limits, request, wait_until};
use millpond_entity::access::{Access, Tokens};
use millpond_entity::parts::PART_BYTES;
use millpond_entity::store::Disk;
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::memory::MemoryStore;
use millpond_entity::{Engine, EntityConfig, open};
use millpond_http::{LimitValues, ServeConfig};
use serde_json::Value;

/// Path, method and status.
type Answer = (String, String, u16);

/// The description, and what was found of it.
struct Check {
    description: Value,
    seen: BTreeSet<Answer>,
}

fn ask(client: &mut Client, method: &str, target: &str, field: &str, body: &[u8]) -> Reply {
    let length = match field {
        NO_LENGTH => String::new(),
        _ => format!("Content-Length: {}\r\n", body.len()),
    };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{field}{length}\r\n");
    client.send(head.as_bytes()).unwrap();
    client.send(body).unwrap();
    client.read_reply(method == "HEAD").unwrap().unwrap()
}

impl Check {
    fn responses(&self) -> impl Iterator<Item = (Answer, &Value)> {
        let paths = self.description["paths"].as_object().unwrap();
        paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().iter();
            methods.flat_map(move |(method, operation)| {
                let responses = operation["responses"].as_object().unwrap().iter();
                responses.map(move |(status, response)| {
                    let method = method.to_uppercase();
                    let answer = (path.clone(), method, status.parse().unwrap());
                    (answer, response)
                })
            })
        })
    }

    /// The response is described, with its type and its fields.
    fn note(&mut self, method: &str, target: &str, reply: &Reply) {
        let path = target.split('?').next().unwrap();
        let answer = (path.to_owned(), method.to_owned(), reply.status);
        let described = self.responses().find(|(described, _)| *described == answer);
        let (_, response) = described.unwrap_or_else(|| panic!("{answer:?} is not described"));
        if let Some(fields) = response["headers"].as_object() {
            for (name, _) in fields {
                let found = reply.field(name);
                assert!(found.is_some(), "{answer:?} lacks {name}");
            }
        }
        let types: Vec<&String> = response["content"]
            .as_object()
            .map_or(Vec::new(), |content| content.keys().collect());
        match reply.field("Content-Type") {
            None => assert_eq!(types, [""; 0], "{answer:?} has no type"),
            Some(found) => assert!(
                types.iter().any(|name| *name == found || *name == "*/*"),
                "{answer:?} is {found}, described as {types:?}"
            ),
        }
        self.seen.insert(answer);
    }

    fn provoke(&mut self, client: &mut Client, requests: &[(&str, &str, &str, u16)]) {
        for &(method, target, field, status) in requests {
            let body: &[u8] = match (method, status) {
                ("PUT", 413) => &[0; 2000],
                ("PUT", 411) => b"",
                ("PUT", _) => b"value",
                _ => b"",
            };
            let reply = ask(client, method, target, field, body);
            assert_eq!(reply.status, status, "{method} {target} {field}");
            self.note(method, target, &reply);
        }
    }
}

const ENTITY: &str = "/v0/entity?id=a";
const NO_ID: &str = "/v0/entity";
const RANGE: &str = "/v0/entities?start=a&end=b";
const NO_START: &str = "/v0/entities";
const STATUS: &str = "/v0/status";
const CHECKPOINT: &str = "/v0/admin/checkpoint?name=monday";
const FLUSH: &str = "/v0/admin/flush";
const COMPACT: &str = "/v0/admin/compact";
const OTHER: &str = "If-Match: \"other\"\r\n";
/// In place of a length.
const NO_LENGTH: &str = "X-No-Length: 1\r\n";
const BAD_ENCODING: &str = "Content-Encoding: gzip;q=1\r\n";
const ANY: &str = "If-None-Match: *\r\n";

/// Responses of a working server, in this order; the range is requested separately.
const WORKING: [(&str, &str, &str, u16); 22] = [
    ("GET", STATUS, "", 200),
    ("HEAD", STATUS, "", 200),
    ("GET", ENTITY, "", 404),
    ("HEAD", ENTITY, "", 404),
    ("GET", NO_ID, "", 400),
    ("HEAD", NO_ID, "", 400),
    ("PUT", NO_ID, "", 400),
    ("DELETE", NO_ID, "", 400),
    ("GET", NO_START, "", 400),
    ("HEAD", NO_START, "", 400),
    ("PUT", ENTITY, "", 201),
    ("PUT", ENTITY, NO_LENGTH, 411),
    ("PUT", ENTITY, ANY, 412),
    ("GET", ENTITY, "", 200),
    ("HEAD", ENTITY, "", 200),
    ("GET", ENTITY, ANY, 304),
    ("HEAD", ENTITY, ANY, 304),
    ("GET", ENTITY, OTHER, 412),
    ("HEAD", ENTITY, OTHER, 412),
    ("DELETE", ENTITY, OTHER, 412),
    ("DELETE", ENTITY, "", 202),
    ("HEAD", RANGE, "", 200),
];

/// The responses to a target too long for the server; each closes its connection.
const LONG: [(&str, &str); 9] = [
    ("GET", ENTITY),
    ("HEAD", ENTITY),
    ("PUT", ENTITY),
    ("DELETE", ENTITY),
    ("GET", RANGE),
    ("HEAD", RANGE),
    ("PUT", CHECKPOINT),
    ("PUT", "/v0/admin/flush?"),
    ("PUT", "/v0/admin/compact?"),
];

/// Responses with a failing disk.
const FAILING: [(&str, &str, &str, u16); 7] = [
    ("PUT", ENTITY, "", 503),
    ("DELETE", ENTITY, "", 503),
    ("GET", ENTITY, "", 503),
    ("HEAD", ENTITY, "", 503),
    ("GET", RANGE, "", 503),
    ("GET", STATUS, "", 503),
    ("HEAD", STATUS, "", 503),
];

/// Responses with a full disk.
const FULL: [(&str, &str, &str, u16); 7] = [
    ("PUT", FLUSH, "", 507),
    ("PUT", COMPACT, "", 507),
    ("PUT", CHECKPOINT, "", 507),
    ("PUT", ENTITY, "", 507),
    ("DELETE", ENTITY, "", 507),
    ("GET", STATUS, "", 507),
    ("HEAD", STATUS, "", 507),
];

/// Responses of a cluster only: produced in `cluster`, where three nodes are.
const CLUSTER: [(&str, &str, u16); 9] = [
    ("/v0/entity", "PUT", 500),
    ("/v0/entity", "DELETE", 500),
    ("/v0/entity", "PUT", 501),
    ("/v0/entity", "DELETE", 501),
    ("/v0/entity", "PUT", 504),
    ("/v0/entity", "DELETE", 504),
    ("/v0/entity", "GET", 504),
    ("/v0/entity", "HEAD", 504),
    ("/v0/entities", "GET", 504),
];

/// Responses to a client with neither token, or only that for reading.
const GUARDED: [(&str, &str, &str, u16); 15] = [
    ("PUT", FLUSH, "", 401),
    ("PUT", FLUSH, READER, 403),
    ("PUT", COMPACT, "", 401),
    ("PUT", COMPACT, READER, 403),
    ("GET", ENTITY, "", 401),
    ("HEAD", ENTITY, "", 401),
    ("PUT", ENTITY, "", 401),
    ("DELETE", ENTITY, BASIC, 401),
    ("GET", RANGE, BASIC, 401),
    ("HEAD", RANGE, "", 401),
    ("PUT", CHECKPOINT, "", 401),
    ("PUT", ENTITY, READER, 403),
    ("DELETE", ENTITY, READER, 403),
    ("PUT", CHECKPOINT, READER, 403),
    ("GET", ENTITY, READER, 404),
];
const BASIC: &str = "Authorization: Basic dTpw\r\n";
const READER: &str = "Authorization: Bearer reader-0123456789\r\n";

/// Operators' requests: copies, flushes and compactions, made, refused, failed.
fn provoke_operators(check: &mut Check) {
    let backups = tempfile::tempdir().unwrap();
    let with_checkpoints = |config: &mut EntityConfig, _: &mut ServeConfig| {
        config.checkpoints = Some(backups.path().to_owned());
    };
    let store = Arc::new(open(&EntityConfig::new(backups.path().join("data"))).unwrap());
    let server = TestServer::start(&store, with_checkpoints);
    let made: [(&str, &str, &str, u16); 5] = [
        ("PUT", FLUSH, "", 200),
        ("PUT", COMPACT, "", 200),
        ("PUT", CHECKPOINT, "", 201),
        ("PUT", CHECKPOINT, "", 409),
        ("PUT", "/v0/admin/checkpoint?name=..", "", 400),
    ];
    check.provoke(&mut server.connect(), &made);
    let server = TestServer::start(&Arc::new(MemoryStore::new()), with_checkpoints);
    let other = "/v0/admin/checkpoint?name=tuesday";
    let failing = [
        ("PUT", other, "", 500),
        ("PUT", FLUSH, "", 500),
        ("PUT", COMPACT, "", 500),
    ];
    check.provoke(&mut server.connect(), &failing);

    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let server = TestServer::start(&store, with_checkpoints);
    let under_way = store.hold_upkeep();
    let mut first = server.connect();
    first.send(&request("PUT", FLUSH, b"")).unwrap();
    wait_until(|| store.upkeeps() == 1);
    let mut client = server.connect();
    check.provoke(
        &mut client,
        &[
            ("PUT", FLUSH, "", 503),
            ("PUT", COMPACT, "", 503),
            ("PUT", CHECKPOINT, "", 503),
        ],
    );
    drop(under_way);
    assert_eq!(first.read_reply(false).unwrap().unwrap().status, 500);
    drop((first, client, server));

    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    store.set_disk(Disk {
        free_bytes: 0,
        reserve_bytes: 1000,
    });
    let server = TestServer::start(&store, with_checkpoints);
    check.provoke(&mut server.connect(), &FULL);
}

/// An upload that stands still while another one waits for the memory that it holds.
fn provoke_slow_upload(check: &mut Check) {
    let server = TestServer::start(&Arc::new(MemoryStore::new()), |config, http| {
        config.large_bytes_max = 2 * PART_BYTES as u64;
        let limits = LimitValues {
            contended_grace_ns: 1,
            ..*patient_limits()
        };
        http.limits = limits.checked().unwrap();
    });
    let mut slow = server.connect();
    let body = vec![0; 5 * PART_BYTES];
    let put = request("PUT", ENTITY, &body);
    slow.send(&put[..put.len() - 3 * PART_BYTES]).unwrap();
    let mut client = server.connect();
    wait_until(|| {
        assert_eq!(client.put(b"other", &body), 201);
        !slow.has_nothing()
    });
    let reply = slow.read_reply(false).unwrap().unwrap();
    assert_eq!(reply.status, 408);
    check.note("PUT", ENTITY, &reply);
}

/// Goal: nothing is described that the server does not do, and each of its responses is described.
#[test]
fn description_and_server_agree() {
    let server = TestServer::start(&Arc::new(MemoryStore::new()), |config, _| {
        config.value_bytes_max = 1000;
    });
    let mut client = server.connect();
    let reply = client.request("GET", "/openapi.json", b"");
    let mut check = Check {
        description: serde_json::from_slice(&reply.body).unwrap(),
        seen: BTreeSet::new(),
    };
    check.note("GET", "/openapi.json", &reply);
    check.provoke(&mut client, &[("HEAD", "/openapi.json", "", 200)]);
    check.provoke(&mut client, &WORKING);
    // Its chunks are another test's matter (`range`): here the head is enough.
    let range = ask(&mut server.connect(), "GET", RANGE, "", b"");
    assert_eq!(range.status, 200);
    check.note("GET", RANGE, &range);
    check.provoke(&mut client, &[("PUT", CHECKPOINT, "", 403)]);
    // These close their connections.
    check.provoke(&mut server.connect(), &[("PUT", ENTITY, BAD_ENCODING, 415)]);
    check.provoke(&mut server.connect(), &[("PUT", ENTITY, "", 413)]);
    for (method, target) in LONG {
        let target = target.to_owned() + &"a".repeat(9000);
        check.provoke(&mut server.connect(), &[(method, &target, "", 414)]);
    }

    let faults = Faults {
        failed_sync: Some(1),
        failed_reads: true,
        ..Faults::default()
    };
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
    let server = TestServer::start(&store, |_, _| {});
    check.provoke(&mut server.connect(), &FAILING);
    assert_eq!(store.engine().name, "memory");

    provoke_operators(&mut check);
    provoke_slow_upload(&mut check);

    let server = TestServer::start(&Arc::new(MemoryStore::new()), |config, _| {
        let tokens = |text| Tokens::parse(text).unwrap();
        let readers = tokens("reader-0123456789");
        config.access = Access::limited(tokens("writer-0123456789"), Some(readers));
    });
    for asked in GUARDED {
        // A body that is not read ends its connection.
        check.provoke(&mut server.connect(), &[asked]);
    }

    let described: BTreeSet<Answer> = check.responses().map(|(answer, _)| answer).collect();
    let elsewhere = CLUSTER.map(|(path, method, status)| (path.into(), method.into(), status));
    check.seen.extend(elsewhere);
    assert_eq!(described, check.seen);
}

/// Goal: every reference in the description leads somewhere.
#[test]
fn references_lead_somewhere() {
    fn visit(root: &Value, value: &Value, count: &mut usize) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(root.pointer(pointer).is_some(), "{reference}");
                    *count += 1;
                }
                fields.values().for_each(|value| visit(root, value, count));
            }
            Value::Array(values) => values.iter().for_each(|value| visit(root, value, count)),
            _ => {}
        }
    }
    let description: Value = serde_json::from_str(include_str!("../../src/openapi.json")).unwrap();
    let mut count = 0;
    visit(&description, &description, &mut count);
    assert!(count > 10, "{count} references");
}
