//! Every operation of the API in any order, on both engines, against a map with the expected response of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Client, Reply, TestServer, request_with, target};
use millpond_entity::store::memory::MemoryStore;
use millpond_entity::{EntityConfig, Store, open};
use proptest::prelude::*;

/// Few, so that steps meet; one is the beginning of another, one is above all text.
const IDS: [&[u8]; 4] = [b"a", b"a\n", b"b", b"\xff"];

/// A tag that was never given.
const STRANGE: &str = "\"0123456789abcdef0123456789abcdef\"";

#[derive(Clone, Copy, Debug)]
enum Condition {
    Without,
    Absent,
    Present,
    /// The tag that it has, or one that does not exist.
    Same,
    /// The tag that it had before.
    Stale,
    /// Any but the tag that it has.
    Other,
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, Vec<u8>, Condition),
    /// With an end long ago.
    PutEnded(usize, Condition),
    Delete(usize, Condition),
    Get(usize, Condition),
    Head(usize),
    Range(usize, Option<usize>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || 0..IDS.len();
    let condition = || {
        use Condition::{Absent, Other, Present, Same, Stale, Without};
        prop_oneof![
            6 => Just(Without), 1 => Just(Absent), 1 => Just(Present),
            2 => Just(Same), 1 => Just(Stale), 1 => Just(Other),
        ]
    };
    let value = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 0..200_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ];
    let step = prop_oneof![
        6 => (id(), value, condition()).prop_map(|(id, value, condition)| Step::Put(id, value, condition)),
        1 => (id(), condition()).prop_map(|(id, condition)| Step::PutEnded(id, condition)),
        3 => (id(), condition()).prop_map(|(id, condition)| Step::Delete(id, condition)),
        6 => (id(), condition()).prop_map(|(id, condition)| Step::Get(id, condition)),
        1 => id().prop_map(Step::Head),
        2 => (id(), proptest::option::of(id())).prop_map(|(start, end)| Step::Range(start, end)),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Content of an id.
struct Entity {
    value: Vec<u8>,
    tag: String,
}

/// Fields all responses must agree with.
#[derive(Default)]
struct Model {
    entities: BTreeMap<&'static [u8], Entity>,
    /// The tag before the present one, or before the end.
    stale: BTreeMap<&'static [u8], String>,
}

impl Model {
    /// The field that says it, and whether it holds; a condition on a tag takes one that was given.
    fn judge(&self, id: &[u8], condition: Condition) -> (String, bool) {
        let found = self.entities.get(id);
        let tag = found.map_or(STRANGE, |entity| &entity.tag);
        let stale = self.stale.get(id).map_or(STRANGE, |tag| tag);
        match condition {
            Condition::Without => (String::new(), true),
            Condition::Absent => ("If-None-Match: *\r\n".to_owned(), found.is_none()),
            Condition::Present => ("If-Match: *\r\n".to_owned(), found.is_some()),
            Condition::Same => (format!("If-Match: {tag}\r\n"), found.is_some()),
            Condition::Stale => (format!("If-Match: {stale}\r\n"), false),
            Condition::Other => (format!("If-None-Match: {tag}\r\n"), found.is_none()),
        }
    }

    fn put(&mut self, client: &mut Client, id: &'static [u8], value: &[u8], condition: Condition) {
        let (fields, holds) = self.judge(id, condition);
        let reply = ask(client, "PUT", &target(id), &fields, value);
        assert_eq!(reply.status, if holds { 201 } else { 412 });
        if holds {
            let entity = Entity {
                value: value.to_vec(),
                tag: reply.field("ETag").unwrap().to_owned(),
            };
            self.replace(id, Some(entity));
        }
    }

    fn put_ended(&mut self, client: &mut Client, id: &'static [u8], condition: Condition) {
        let (fields, holds) = self.judge(id, condition);
        let path = format!("{}&expires=1", target(id));
        let reply = ask(client, "PUT", &path, &fields, b"never seen");
        assert_eq!(reply.status, if holds { 201 } else { 412 });
        if holds {
            self.replace(id, None);
        }
    }

    fn delete(&mut self, client: &mut Client, id: &'static [u8], condition: Condition) {
        let (fields, holds) = self.judge(id, condition);
        let reply = ask(client, "DELETE", &target(id), &fields, b"");
        assert_eq!(reply.status, if holds { 202 } else { 412 });
        if holds {
            self.replace(id, None);
        }
    }

    fn replace(&mut self, id: &'static [u8], entity: Option<Entity>) {
        let before = match entity {
            Some(entity) => self.entities.insert(id, entity),
            None => self.entities.remove(id),
        };
        if let Some(before) = before {
            self.stale.insert(id, before.tag);
        }
    }

    fn get(&self, client: &mut Client, id: &[u8], condition: Condition) {
        let (fields, holds) = self.judge(id, condition);
        let found = self.entities.get(id);
        let is_negative = fields.starts_with("If-None-Match");
        let status = match (found, holds) {
            (None, _) => 404,
            (_, true) => 200,
            (_, false) if is_negative => 304,
            (_, false) => 412,
        };
        let bytes = request_with("GET", &target(id), &fields, b"");
        client.send(&bytes).unwrap();
        // The length in a 304 is that of the value.
        let reply = client.read_reply(status == 304).unwrap().unwrap();
        assert_eq!(reply.status, status);
        if let (200, Some(entity)) = (status, found) {
            assert!(reply.body == entity.value);
            assert_eq!(reply.field("ETag"), Some(&*entity.tag));
        }
    }

    fn head(&self, client: &mut Client, id: &[u8]) {
        client
            .send(&request_with("HEAD", &target(id), "", b""))
            .unwrap();
        let reply = client.read_reply(true).unwrap().unwrap();
        match self.entities.get(id) {
            None => assert_eq!(reply.status, 404),
            Some(entity) => {
                assert_eq!(reply.status, 200);
                let length = entity.value.len().to_string();
                assert_eq!(reply.field("Content-Length"), Some(&*length));
                assert_eq!(reply.field("ETag"), Some(&*entity.tag));
            }
        }
    }

    fn range(&self, client: &mut Client, start: &[u8], end: Option<&[u8]>) {
        let escaped = |id: &[u8]| target(id).split_once("id=").unwrap().1.to_owned();
        let end_text = end.map_or(String::new(), |end| format!("&end={}", escaped(end)));
        let path = format!("/v0/entities?start={}{end_text}", escaped(start));
        client.send(&request_with("GET", &path, "", b"")).unwrap();
        assert_eq!(client.read_reply(true).unwrap().unwrap().status, 200);
        let is_in = |id: &&'static [u8]| *id >= start && end.is_none_or(|end| *id < end);
        let entities = self.entities.iter().filter(|(id, _)| is_in(id));
        let expected: Vec<Vec<u8>> = entities
            .map(|(id, entity)| [id, &b"\n"[..], &entity.value].concat())
            .collect();
        assert!(client.read_chunks().unwrap() == expected);
    }
}

fn ask(client: &mut Client, method: &str, path: &str, fields: &str, body: &[u8]) -> Reply {
    let bytes = request_with(method, path, fields, body);
    client.send(&bytes).unwrap();
    client.read_reply(false).unwrap().unwrap()
}

/// Each step on the next of three connections, on two shards: acknowledged writes are visible to all.
fn play<S: Store>(store: &Arc<S>, steps: &[Step]) {
    let server = TestServer::start(store, |_, http| http.shards = 2);
    let mut clients = [server.connect(), server.connect(), server.connect()];
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        let client = &mut clients[number % 3];
        match step {
            Step::Put(id, value, condition) => model.put(client, IDS[*id], value, *condition),
            Step::PutEnded(id, condition) => model.put_ended(client, IDS[*id], *condition),
            Step::Delete(id, condition) => model.delete(client, IDS[*id], *condition),
            Step::Get(id, condition) => model.get(client, IDS[*id], *condition),
            Step::Head(id) => model.head(client, IDS[*id]),
            Step::Range(start, end) => model.range(client, IDS[*start], end.map(|end| IDS[end])),
        }
    }
}

proptest! {
    // Each case starts two servers and opens a database.
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Goal: whatever was done before, each operation responds like a map of values and tags.
    #[test]
    fn every_sequence_is_that_of_a_map(steps in steps()) {
        play(&Arc::new(MemoryStore::new()), &steps);
        let directory = tempfile::tempdir().unwrap();
        let config = EntityConfig::new(directory.path().join("data"));
        play(&Arc::new(open(&config).unwrap()), &steps);
    }
}
