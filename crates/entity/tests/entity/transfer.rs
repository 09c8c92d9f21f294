//! Exports and imports of directories: whole, damaged, cut.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::lost_files::{COUNT, DELETED, changes, files, key, killed, stopped, write_files};
use crate::support::{TestServer, request_with, target};
use millpond_entity::export::{Exported, Skipped, export};
use millpond_entity::import::{ImportError, Imported, import};
use millpond_entity::ndjson::parse::{ParsedEntity, ParsedLine, parse_line};
use millpond_entity::record::Version;
use millpond_entity::store::Durability;
use millpond_entity::{EntityConfig, Store, open};

/// The lines of a directory, and the reports of missing parts.
fn exported(data: &Path) -> Result<(Exported, Vec<u8>, Vec<String>), String> {
    let (mut text, mut told) = (Vec::new(), Vec::new());
    let done = export(data, &mut text, &mut |skipped: &Skipped<'_>| {
        told.push(skipped.to_string());
    });
    match done {
        Ok(done) => Ok((done, text, told)),
        Err(error) => Err(error.to_string()),
    }
}

fn entities(text: &[u8]) -> Vec<ParsedEntity> {
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    let parsed = lines.map(|line| parse_line(line).unwrap());
    let of = |line| match line {
        ParsedLine::Entity(entity) => Some(entity),
        ParsedLine::End { .. } | ParsedLine::Next => None,
    };
    parsed.filter_map(of).collect()
}

/// Some of every kind: odd ids, types, ends, values of no bytes and of many.
fn fill(data: &Path) {
    let store = Arc::new(open(&EntityConfig::new(data.to_owned())).unwrap());
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    let mut put = |id: &[u8], query: &str, field: &str, value: &[u8]| {
        let target = target(id) + query;
        client
            .send(&request_with("PUT", &target, field, value))
            .unwrap();
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
    };
    put(b"a\n\"", "", "Content-Type: text/plain\r\n", b"one\ntwo\0");
    put(b"\xff", "", "Content-Type: text/plain\r\n", b"\xff");
    put(b"ends", "&expires=4102444800", "", b"");
    put(b"ended", "&expires=1", "", b"gone");
    put(b"large", "", "", &vec![9; 5_000_000]);
    for n in 0..2000_u16 {
        put(
            &n.to_be_bytes(),
            "",
            "Content-Type: application/json\r\n",
            b"{}",
        );
    }
}

/// Goal: a directory filled from an export has the same entities, tags, types and ends, and so another export of it is
/// the same bytes; a server on it gives out no version that is there.
#[test]
fn an_export_is_imported_whole() {
    let home = tempfile::tempdir().unwrap();
    let (data, copy) = (home.path().join("data"), home.path().join("copy"));
    fill(&data);
    let before = files(&data);
    let (done, text, told) = exported(&data).unwrap();
    assert_eq!((done.entities, done.ended, done.skipped), (2004, 1, 0));
    assert_eq!(told, [""; 0]);
    assert!(text.ends_with(b"\n{\"end\":true}\n"));
    assert!(
        files(&data) == before,
        "an export has changed the directory"
    );
    let found = import(&copy, &mut &text[..]).unwrap();
    let expected = Imported {
        entities: 2004,
        ended: 0,
        skipped: 0,
    };
    assert_eq!(found, expected);
    let (_, again, _) = exported(&copy).unwrap();
    assert!(again == text);
    // The same once more is the same.
    import(&copy, &mut &text[..]).unwrap();
    assert!(exported(&copy).unwrap().1 == text);

    let newest = entities(&text)
        .iter()
        .filter_map(|entity| entity.version)
        .map(|version| version.0)
        .max();
    let store = Arc::new(open(&EntityConfig::new(copy)).unwrap());
    let server = TestServer::start(&store, |_, _| {});
    let tag = server.connect().request("PUT", "/v0/entity?id=new", b"1");
    let tag = tag.field("ETag").unwrap().trim_matches('"').to_owned();
    assert!(u64::from_str_radix(&tag, 16).unwrap() > newest.unwrap());
}

/// Goal: tags of a clock that was ahead are kept, and later ones are still larger, also after the next start.
#[test]
fn versions_rise_over_imported_ones() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let ahead = Version((1 << 51) << 11);
    let line = format!(
        "{{\"id\":\"a\",\"etag\":\"\\\"{:016x}\\\"\",\"value\":\"1\"}}\n{{\"end\":true}}",
        ahead.0
    );
    import(&data, &mut line.as_bytes()).unwrap();
    let without = b"{\"id\":\"b\",\"value\":\"1\"}\n{\"end\":true}";
    import(&data, &mut &without[..]).unwrap();
    let (_, text, _) = exported(&data).unwrap();
    let versions: Vec<_> = entities(&text)
        .iter()
        .map(|entity| entity.version)
        .collect();
    assert_eq!(versions[0], Some(ahead));
    assert!(
        versions[1].is_some_and(|version| version.0 > ahead.0),
        "{versions:?}"
    );
}

/// Goal: a line that is not understood is named by its number, what stands before it is there, and nothing behind it;
/// a file that was cut is no whole one; blank lines and the ends of pieces are passed over.
#[test]
fn imports_are_refused_by_line() {
    let home = tempfile::tempdir().unwrap();
    let line = |id: &str| format!("{{\"id\":\"{id}\",\"value\":\"1\"}}\n");
    let ids = |data: &Path| -> Vec<String> {
        let (_, text, _) = exported(data).unwrap();
        let ids = entities(&text)
            .into_iter()
            .map(|entity| String::from_utf8(entity.id).unwrap());
        ids.collect()
    };
    let data = home.path().join("data");
    let text = line("a") + "\n" + &line("b") + "{\"id\":\"c\",\"valu\":\"1\"}\n" + &line("d");
    let error = import(&data, &mut text.as_bytes()).unwrap_err();
    assert!(
        matches!(
            error,
            ImportError::Line {
                line: 4,
                imported: 2,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("unknown field `valu`"),
        "{error}"
    );
    assert_eq!(ids(&data), ["a", "b"]);

    for (text, line) in [
        (line("e"), 1),
        (String::new(), 0),
        (line("e") + "{\"next\":\"e\"}\n", 2),
    ] {
        let error = import(&data, &mut text.as_bytes()).unwrap_err();
        assert!(
            matches!(error, ImportError::Cut { line: found, .. } if found == line),
            "{text}: {error}"
        );
    }
    // The last line of a file that was cut within it.
    let error = import(&data, &mut &b"{\"id\":\"f\",\"va"[..]).unwrap_err();
    assert!(
        matches!(error, ImportError::Line { line: 1, .. }),
        "{error}"
    );

    let pieces = line("g") + "{\"next\":\"g\"}\n" + &line("h") + "{\"end\":true,\"skipped\":2}\n\n";
    let found = import(&data, &mut pieces.as_bytes()).unwrap();
    assert_eq!((found.entities, found.skipped), (2, 2));
    assert_eq!(ids(&data), ["a", "b", "e", "g", "h"]);
}

/// All valid entities are in the export, or losses are reported; none is wrong. Returns how many are valid.
fn salvaged(data: &Path, what: &str) -> Option<usize> {
    let before = files(data);
    let found = exported(data);
    assert!(files(data) == before, "{what}: the directory was changed");
    let (done, text, told) = match found {
        Ok(found) => found,
        Err(sentence) => {
            assert!(sentence.len() > 20, "{what}: {sentence}");
            return None;
        }
    };
    assert_eq!(done.skipped, told.len() as u64, "{what}");
    let expected: BTreeMap<_, _> = (0..COUNT)
        .map(|n| (key(n).to_vec(), vec![n.to_be_bytes()[1]; 500]))
        .collect();
    let mut right = 0;
    for entity in entities(&text) {
        let value = expected.get(&entity.id);
        assert_eq!(value, Some(&entity.value), "{what}: {:?}", entity.id);
        let is_deleted = entity.id < key(DELETED).to_vec();
        assert!(
            !is_deleted || done.skipped > 0,
            "{what}: a deleted one is back"
        );
        right += usize::from(!is_deleted);
    }
    let all = usize::from(COUNT - DELETED);
    assert!(
        right == all || done.skipped > 0,
        "{what}: {right} in silence"
    );
    Some(right)
}

/// Goal: whatever file is missing, cut or damaged, an export has all readable entities, reports the loss, has no wrong
/// ones, and changes no file; a damaged table or list of files loses at most its own entities.
#[test]
fn damaged_directories_give_what_is_readable() {
    let home = tempfile::tempdir().unwrap();
    for (index, original) in [stopped(), killed(Durability::Synced)]
        .into_iter()
        .enumerate()
    {
        for name in original.keys() {
            for (change, bytes) in changes(&original[name]) {
                let what = format!("{index} {name} {change}");
                let mut changed = original.clone();
                match bytes {
                    Some(bytes) => changed.insert(name.clone(), bytes),
                    None => changed.remove(name),
                };
                let data = home.path().join(what.replace(' ', "-"));
                write_files(&data, &changed);
                let right = salvaged(&data, &what);
                let is_table = name.ends_with(".sst");
                let is_list = name == "CURRENT" || name.starts_with("MANIFEST-");
                if is_table && change == "flipped within" {
                    // One block.
                    assert!(right >= Some(260), "{what}: {right:?}");
                }
                if is_table {
                    assert!(right >= Some(190), "{what}: {right:?}");
                }
                if is_list {
                    assert_eq!(right, Some(280), "{what}");
                }
                fs::remove_dir_all(&data).unwrap();
            }
        }
    }
}

/// Goal: with blocks damaged here and there in a table, everything but what lies in them is read, in order.
#[test]
fn reading_goes_on_behind_damaged_blocks() {
    const MANY: u32 = 20_000;
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let store = open(&EntityConfig::new(data.clone())).unwrap();
    for n in 0..MANY {
        let record = millpond_entity::record::encode(
            &millpond_entity::record::Head {
                version: Version(1),
                expires_ms: 0,
                content_type: b"",
                content_encoding: b"",
            },
            &[n as u8; 100],
        );
        let id = format!("user:{n:08}");
        let write = millpond_entity::store::Write::Put {
            key: id.as_bytes(),
            head: b"",
            value: &record,
        };
        store
            .commit([write].into_iter(), 0, Durability::Written)
            .unwrap();
    }
    store.compact().unwrap();
    drop(store);
    let table = files(&data)
        .into_iter()
        .filter(|(name, _)| name.ends_with(".sst"))
        .max_by_key(|(_, bytes)| bytes.len());
    let (name, mut bytes) = table.unwrap();
    // In the third that is data in any case.
    let places = [1, 3, 4, 9, 30].map(|part| bytes.len() / 100 * part);
    places.iter().for_each(|&at| bytes[at] ^= 0x40);
    fs::write(data.join(name), bytes).unwrap();
    let (done, text, told) = exported(&data).unwrap();
    assert!((1..=5).contains(&done.skipped), "{told:?}");
    assert!(told.iter().all(|one| one.contains("user:")), "{told:?}");
    // A block is 4 KiB, less than 40 of these.
    let missing = u64::from(MANY) - done.entities;
    assert!(
        (1..=5 * 40).contains(&missing),
        "{missing} are missing: {told:?}"
    );
    let ids: Vec<_> = entities(&text)
        .into_iter()
        .map(|entity| entity.id)
        .collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
    assert!(text.ends_with(format!("{{\"end\":true,\"skipped\":{}}}\n", done.skipped).as_bytes()));
}
