//! The entity API over real sockets, each scene on all engines.

use std::sync::Arc;

use crate::support::{Client, TestServer, request, request_with, rocksdb, target, wait_until};
use millpond_entity::record::Head;
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::memory::MemoryStore;
use millpond_entity::{Engine, EntityConfig, open};
use millpond_http::ServeConfig;
use millpond_mempool::PoolMode;

/// Runs a scene on RocksDB, on memory, with values that are never in memory, and without pools; and
/// on a cluster, where there is one.
fn on_each_store(scene: impl Fn(&TestServer)) {
    #[cfg(feature = "distributed")]
    for settings in ["buckets=4", "buckets=4&conditions=on"] {
        crate::support::cluster::play(settings, &scene);
    }
    let defaults = |_: &mut EntityConfig, _: &mut ServeConfig| {};
    let (_directory, store) = rocksdb();
    scene(&TestServer::start(&store, defaults));
    scene(&TestServer::start(&Arc::new(MemoryStore::new()), defaults));
    let cold = Faults {
        cold: true,
        ..Faults::default()
    };
    let (_directory, store) = rocksdb();
    let store = Arc::into_inner(store).unwrap();
    scene(&TestServer::start(
        &Arc::new(FaultyStore::new(store, cold)),
        defaults,
    ));
    for pools in ["off", "arena-only", "checked", "checked,guard"] {
        let pool_mode: PoolMode = pools.parse().unwrap();
        let (_directory, store) = rocksdb();
        scene(&TestServer::start(&store, |_, http| {
            http.pool_mode = pool_mode;
        }));
    }
}

/// Goal: a value comes back under the type and the encoding that it was put with.
#[test]
fn encodings_are_kept() {
    on_each_store(|server| {
        let mut client = server.connect();
        for (fields, encoding) in [
            (
                "Content-Encoding: gzip, br\r\nContent-Type: text/css\r\n",
                Some("gzip, br"),
            ),
            (
                "Content-Encoding: identity\r\nContent-Type: text/css\r\n",
                None,
            ),
            ("Content-Type: text/css\r\n", None),
        ] {
            client
                .send(&request_with("PUT", &target(b"k"), fields, b"value"))
                .unwrap();
            assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
            let found = client.get(b"k");
            assert_eq!(found.field("Content-Encoding"), encoding);
            assert_eq!(found.field("Content-Type"), Some("text/css"));
            assert_eq!(found.field("X-Content-Type-Options"), Some("nosniff"));
        }
    });
}

/// A fragment with Content-Range replaced its value, gzip was returned to readers unmarked, a PUT without a length
/// wiped the value, and `expire=+1` was kept for ever: all with 201.
///
/// Goal: unsupported parts that would change a request's meaning are refused, and nothing is written; parts without
/// effect are accepted.
#[test]
fn what_is_not_done_is_refused() {
    on_each_store(|server| {
        assert_eq!(server.connect().put(b"k", b"kept"), 201);
        let ask = |target: &str, fields: &str| {
            // A refused body ends its connection.
            let mut client = server.connect();
            let head = format!("PUT {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\nvalue");
            client.send(head.as_bytes()).unwrap();
            client.read_reply(false).unwrap().unwrap().status
        };
        let with_length = |fields: &str| format!("{fields}Content-Length: 5\r\n");
        for (target, fields, status) in [
            ("k", "Content-Range: bytes 0-4/10\r\n", 400),
            ("k", "Content-Encoding: gzip;q=1\r\n", 415),
            (
                "k",
                "Content-Encoding: gzip\r\nContent-Encoding: br\r\n",
                415,
            ),
            (
                "k",
                "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
                412,
            ),
            ("k", "Content-Type: a/b\r\ncontent-type: c/d\r\n", 400),
            (
                "k",
                "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
                400,
            ),
            ("k&expire=%2B1", "", 400),
            ("k&id=other", "", 400),
            ("k&expires=1&expires=%2B100", "", 400),
        ] {
            let target = format!("/v0/entity?id={target}");
            assert_eq!(
                ask(&target, &with_length(fields)),
                status,
                "{target} {fields}"
            );
        }
        assert_eq!(ask("/v0/entity?id=k", ""), 411);
        let mut client = server.connect();
        assert_eq!(client.get(b"k").body, b"kept");
        for target in [
            "/v0/entity?id=k&ID=k",
            "/v0/entity?id=k&expires=1",
            "/v0/entities?start=k&limits=1",
        ] {
            assert_eq!(client.request("GET", target, b"").status, 400, "{target}");
        }
        assert_eq!(
            client.request("DELETE", "/v0/entity?id=k&id=j", b"").status,
            400
        );
        assert_eq!(client.get(b"k").body, b"kept");
        for fields in [
            "Content-Encoding: identity\r\n",
            "Range: bytes=0-1\r\n",
            "X-Other: 1\r\nX-Other: 2\r\n",
        ] {
            assert_eq!(
                ask("/v0/entity?id=k", &with_length(fields)),
                201,
                "{fields}"
            );
        }
        assert_eq!(ask("/v0/entity?id=k", "Content-Length: 0\r\n"), 201);
        assert_eq!(server.connect().get(b"k").body, b"");
    });
}

/// Goal: the life of an entity, with every success code.
#[test]
fn put_get_overwrite_delete() {
    on_each_store(|server| {
        let mut client = server.connect();
        assert_eq!(client.get(b"key").status, 404);
        assert_eq!(client.put(b"key", b"first"), 201);
        let reply = client.get(b"key");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"first"[..]));
        assert_eq!(
            reply.field("Content-Type"),
            Some("application/octet-stream")
        );
        assert_eq!(client.put(b"key", b"second, longer"), 201);
        assert_eq!(client.get(b"key").body, b"second, longer");
        assert_eq!(client.delete(b"key"), 202);
        assert_eq!(client.get(b"key").status, 404);
        assert_eq!(
            client.delete(b"key"),
            202,
            "deleting an absent entity is no error"
        );
    });
}

/// Goal: two ids are two entities, also when one begins with the other.
#[test]
fn two_keys_do_not_meet() {
    on_each_store(|server| {
        let mut client = server.connect();
        assert_eq!(client.put(b"a", b"short"), 201);
        assert_eq!(client.put(b"ab", b"long"), 201);
        assert_eq!(client.get(b"a").body, b"short");
        assert_eq!(client.get(b"ab").body, b"long");
        assert_eq!(client.delete(b"a"), 202);
        assert_eq!(client.get(b"a").status, 404);
        assert_eq!(client.get(b"ab").body, b"long");
    });
}

/// Goal: values of every size come back exact: empty, around buffer sizes, 1 MiB of all bytes.
#[test]
fn values_of_every_size_come_back_exact() {
    on_each_store(|server| {
        let mut client = server.connect();
        for len in [
            0,
            1,
            5,
            255,
            4096,
            32 * 1024,
            32 * 1024 + 1,
            65_536,
            1 << 20,
        ] {
            let value: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
            assert_eq!(client.put(b"sized", &value), 201, "{len}");
            let reply = client.get(b"sized");
            assert_eq!(reply.status, 200);
            assert!(
                reply.body == value,
                "{len} bytes came back as {}",
                reply.body.len()
            );
        }
    });
}

/// Goal: a chunked body is stored as the bytes it means.
#[test]
fn chunked_put_is_stored_whole() {
    on_each_store(|server| {
        let mut client = server.connect();
        client
            .send(b"PUT /v0/entity?id=c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        client.send(b"5\r\nhello\r\n").unwrap();
        client.send(b"7\r\n, world\r\n0\r\n\r\n").unwrap();
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
        assert_eq!(client.get(b"c").body, b"hello, world");
    });
}

/// Goal: an id is bytes: all 256 of them work, and an escape means the byte it names.
#[test]
fn ids_are_percent_encoded_bytes() {
    on_each_store(|server| {
        let mut client = server.connect();
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(client.put(&all, b"all bytes"), 201);
        assert_eq!(client.get(&all).body, b"all bytes");
        for byte in 0..=255_u8 {
            assert_eq!(client.put(&[byte], &[byte, byte]), 201);
        }
        for byte in 0..=255_u8 {
            assert_eq!(client.get(&[byte]).body, [byte, byte]);
        }
        assert_eq!(
            client.request("PUT", "/v0/entity?id=%41b", b"x").status,
            201
        );
        assert_eq!(client.request("GET", "/v0/entity?id=A%62", b"").body, b"x");
        assert_eq!(
            client.request("PUT", "/v0/entity?&id=a+b&", b"plus").status,
            201
        );
        assert_eq!(
            client.get(b"a+b").body,
            b"plus",
            "+ is a plus sign, and an empty pair says nothing"
        );
    });
}

/// Goal: every malformed id is 400, the longest good one works, and the connection lives on.
#[test]
fn bad_ids_are_refused() {
    on_each_store(|server| {
        let mut client = server.connect();
        for method in ["GET", "PUT", "DELETE"] {
            for target in [
                "/v0/entity",
                "/v0/entity?",
                "/v0/entity?id",
                "/v0/entity?id=",
                "/v0/entity?ID=a",
                "/v0/entity?idx=a",
                "/v0/entity?id=%",
                "/v0/entity?id=%4",
                "/v0/entity?id=%zz",
                "/v0/entity?id=a%2",
            ] {
                let reply = client.request(method, target, b"");
                assert_eq!(reply.status, 400, "{method} {target}");
                assert!(!reply.body.is_empty(), "a refusal says why");
            }
            let too_long = client.request(method, &target(&[b'k'; 1025]), b"");
            assert_eq!(too_long.status, 400);
            assert_eq!(
                client.request(method, &target(&[b' '; 1025]), b"").status,
                400
            );
        }
        assert_eq!(client.put(&[b'k'; 1024], b"long id"), 201);
        assert_eq!(client.get(&[b'k'; 1024]).body, b"long id");
        assert_eq!(client.put(&[0; 1024], b"long escaped id"), 201);
        assert_eq!(client.get(&[0; 1024]).body, b"long escaped id");
    });
}

/// Goal: where there is one copy, one may be asked for, by every call; all else is 400 and changes nothing.
#[test]
fn replicas_of_one_are_one() {
    let (_directory, store) = rocksdb();
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    let mut ask = |method: &str, replicas: &str| {
        let target = format!("/v0/entity?id=k&replicas={replicas}");
        client.request(method, &target, b"v")
    };
    for replicas in ["1/1", "1%2F1"] {
        assert_eq!(ask("PUT", replicas).status, 201);
        assert_eq!(ask("GET", replicas).body, b"v");
        assert_eq!(ask("HEAD", replicas).status, 200);
        assert_eq!(ask("DELETE", replicas).status, 202);
        assert_eq!(ask("GET", replicas).status, 404);
    }
    for replicas in ["0/1", "2/1", "1/3", "2/3", "", "1", "1/", "one/1"] {
        for method in ["PUT", "GET", "DELETE"] {
            let refused = ask(method, replicas);
            assert_eq!(refused.status, 400, "{method} {replicas}");
            assert!(!refused.body.is_empty(), "a refusal says why");
        }
        let range = format!("/v0/entities?start=a&replicas={replicas}");
        assert_eq!(server.connect().request("GET", &range, b"").status, 400);
        assert_eq!(server.connect().request("HEAD", &range, b"").status, 400);
    }
    assert_eq!(ask("GET", "1/1").status, 404);
    assert_eq!(
        server
            .connect()
            .request("HEAD", "/v0/entities?start=a&replicas=1/1", b"")
            .status,
        200
    );
}

/// Goal: unknown paths are 400, known paths with another method 405 with the allowed ones, an unknown method is 501,
/// and OPTIONS gets the allowed ones.
#[test]
fn unknown_paths_and_methods() {
    on_each_store(|server| {
        let mut client = server.connect();
        for path in [
            "/",
            "/v0",
            "/v0/entity/",
            "/v0/entity/a",
            "/v1/entity?id=a",
            "/V0/entity?id=a",
        ] {
            assert_eq!(client.request("GET", path, b"").status, 400, "{path}");
        }
        for (path, allow) in [
            ("/v0/entity?id=a", "GET, HEAD, PUT, DELETE, OPTIONS"),
            ("/v0/entity", "GET, HEAD, PUT, DELETE, OPTIONS"),
            ("/v0/entities", "GET, HEAD, OPTIONS"),
            ("/v0/status", "GET, HEAD, OPTIONS"),
            ("/openapi.json", "GET, HEAD, OPTIONS"),
            ("/v0/admin/checkpoint", "PUT, OPTIONS"),
            ("/v0/admin/flush", "PUT, OPTIONS"),
            ("/v0/admin/compact", "PUT, OPTIONS"),
        ] {
            for (method, status) in [
                ("POST", 405),
                ("PATCH", 405),
                ("TRACE", 405),
                ("OPTIONS", 204),
                ("BREW", 501),
                ("get", 501),
            ] {
                let reply = client.request(method, path, b"");
                assert_eq!(reply.status, status, "{method} {path}");
                assert_eq!(reply.field("Allow"), Some(allow), "{method} {path}");
                assert_eq!(reply.body.is_empty(), status == 204, "{method} {path}");
            }
        }
        let reply = client.request("OPTIONS", "*", b"");
        let allow = Some("GET, HEAD, PUT, DELETE, OPTIONS");
        assert_eq!((reply.status, reply.field("Allow")), (204, allow));
        assert_eq!(client.request("GET", "/v0/status", b"").status, 200);
    });
}

/// Goal: HEAD returns a value's size without the value.
#[test]
fn head_is_a_get_without_the_value() {
    on_each_store(|server| {
        let mut client = server.connect();
        assert_eq!(client.put(b"key", &[7; 3000]), 201);
        let reply = client.request("HEAD", &target(b"key"), b"");
        assert_eq!(
            (reply.status, reply.field("Content-Length")),
            (200, Some("3000"))
        );
        assert_eq!(client.request("HEAD", &target(b"none"), b"").status, 404);
        assert_eq!(
            client.get(b"key").body,
            [7; 3000],
            "the connection is still in step"
        );
    });
}

/// Goal: a body at the limit is stored; one byte more is 413 and stores nothing.
#[test]
fn body_limit_is_exact() {
    let (_directory, store) = rocksdb();
    let server = TestServer::start(&store, |config, _| config.value_bytes_max = 1000);
    let mut client = server.connect();
    assert_eq!(client.put(b"fits", &[1; 1000]), 201);
    client
        .send(&request("PUT", &target(b"big"), &[1; 1001]))
        .unwrap();
    assert_eq!(client.read_reply(false).unwrap().unwrap().status, 413);
    assert_eq!(server.connect().get(b"big").status, 404);
    assert_eq!(server.connect().get(b"fits").body, [1; 1000]);
}

/// Goal: requests of one connection take effect and get responses in the order they were sent, although puts wait for a
/// commit and gets do not.
#[test]
fn pipelined_requests_keep_their_order() {
    on_each_store(|server| {
        let mut client = server.connect();
        let mut bytes = Vec::new();
        for round in 0..50 {
            let value = format!("value {round}");
            bytes.extend(request("PUT", &target(b"p"), value.as_bytes()));
            bytes.extend(request("GET", &target(b"p"), b""));
            bytes.extend(request("DELETE", &target(b"p"), b""));
            bytes.extend(request("GET", &target(b"p"), b""));
            bytes.extend(request("GET", "/v0/entity?id=", b""));
        }
        client.send(&bytes).unwrap();
        for round in 0..50 {
            let mut next = || client.read_reply(false).unwrap().unwrap();
            assert_eq!(next().status, 201);
            let got = next();
            assert_eq!(
                (got.status, got.body),
                (200, format!("value {round}").into_bytes())
            );
            assert_eq!(next().status, 202);
            assert_eq!(next().status, 404);
            assert_eq!(next().status, 400);
        }
    });
}

/// Goal: a value acknowledged on one connection is read on another one, across shards.
#[test]
fn acknowledged_writes_are_seen_by_every_shard() {
    let (_directory, store) = rocksdb();
    let server = TestServer::start(&store, |_, http| http.shards = 2);
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    for round in 0..40_usize {
        let value = round.to_string().into_bytes();
        assert_eq!(clients[round % 8].put(b"shared", &value), 201);
        for client in &mut clients {
            assert_eq!(client.get(b"shared").body, value);
        }
    }
}

/// Goal: a client that leaves before its response has no other effect, and its write is still done.
#[test]
fn client_that_leaves_early_harms_nobody() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let server = TestServer::start(&store, |_, _| {});
    store.hold();
    let mut leaver = server.connect();
    leaver
        .send(&request("PUT", &target(b"left"), b"behind"))
        .unwrap();
    wait_until(|| store.commits() == 1);
    drop(leaver);
    store.release();
    let mut client = server.connect();
    wait_until(|| client.get(b"left").body == b"behind");
    assert_eq!(client.put(b"next", b"works"), 201);
}

/// Goal: more waiting requests than allowed are refused with 503 at once, and none is lost.
#[test]
fn overload_is_refused_and_passes() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let server = TestServer::start(&store, |config, _| config.jobs_in_flight_max = 2);
    store.hold();
    let mut waiting: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for (index, client) in waiting.iter_mut().enumerate() {
        client
            .send(&request("PUT", &target(&[b'w', index as u8]), b"waits"))
            .unwrap();
    }
    let mut client = server.connect();
    wait_until(|| client.metric("millpond_entity_jobs_in_flight ") == 2);
    let refused = client.request("PUT", &target(b"third"), b"refused");
    assert_eq!(
        (refused.status, refused.field("Retry-After")),
        (503, Some("1"))
    );
    assert_eq!(
        client.get(b"third").status,
        404,
        "reads from memory are not held up"
    );
    store.release();
    for client in &mut waiting {
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
    }
    assert_eq!(client.put(b"third", b"accepted"), 201);
    assert_eq!(client.metric("millpond_entity_overloads_total "), 1);
}

/// Goal: bytes in flight are limited too, but a value larger than the whole limit still gets in
/// when it is alone.
#[test]
fn bytes_in_flight_are_limited() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let server = TestServer::start(&store, |config, _| config.bytes_in_flight_max = 1000);
    store.hold();
    let mut large = server.connect();
    large
        .send(&request("PUT", &target(b"large"), &[1; 5000]))
        .unwrap();
    let mut client = server.connect();
    wait_until(|| client.metric("millpond_entity_jobs_in_flight ") == 1);
    assert_eq!(client.put(b"small", b"refused"), 503);
    store.release();
    assert_eq!(large.read_reply(false).unwrap().unwrap().status, 201);
    assert_eq!(client.put(b"small", b"accepted"), 201);
}

/// Goal: after a failed commit nothing is acknowledged, status reports it, reads go on.
#[test]
fn failed_commit_refuses_writes_and_keeps_reading() {
    for faults in [
        Faults {
            failed_sync: Some(3),
            ..Faults::default()
        },
        Faults {
            broken_after_commits: Some(2),
            ..Faults::default()
        },
        // Writes waited for ever, and status reported ready.
        Faults {
            panicking_commit: Some(3),
            ..Faults::default()
        },
    ] {
        let (directory, inner) = rocksdb();
        let store = Arc::new(FaultyStore::new(Arc::into_inner(inner).unwrap(), faults));
        let server = TestServer::start(&store, |_, _| {});
        let mut client = server.connect();
        assert_eq!(client.put(b"one", b"1"), 201);
        assert_eq!(client.put(b"two", b"2"), 201);
        assert_eq!(client.put(b"three", b"3"), 503);
        assert_eq!(client.put(b"four", b"4"), 503);
        assert_eq!(client.delete(b"one"), 503);
        assert_eq!(server.connect().put(b"five", b"5"), 503);
        assert_eq!(client.get(b"one").body, b"1");
        assert_eq!(client.get(b"two").body, b"2");
        assert_eq!(client.request("GET", "/v0/status", b"").status, 503);
        assert_eq!(client.metric("millpond_entity_poisoned "), 1);
        assert_eq!(client.metric("millpond_entity_puts_total "), 2);
        assert_eq!(store.commits(), 3, "a poisoned store is not written to");

        // A restart knows what is really there, and writes again.
        drop((client, server, store));
        let store = open(&EntityConfig::new(directory.path().join("data"))).unwrap();
        let server = TestServer::start(&Arc::new(store), |_, _| {});
        let mut client = server.connect();
        assert_eq!(client.get(b"one").body, b"1");
        assert_eq!(client.get(b"two").body, b"2");
        assert_eq!(client.put(b"three", b"again"), 201);
        assert_eq!(client.get(b"three").body, b"again");
    }
}

/// Goal: a read that panics gets 503, and so is the next one: the read thread goes on.
#[test]
fn a_panicking_read_ends_no_thread() {
    let (_directory, inner) = rocksdb();
    let faults = Faults {
        panicking_reads: true,
        cold: true,
        ..Faults::default()
    };
    let store = FaultyStore::new(Arc::into_inner(inner).unwrap(), faults);
    let server = TestServer::start(&Arc::new(store), |_, _| {});
    let mut client = server.connect();
    assert_eq!(client.put(b"one", b"1"), 201);
    for _ in 0..20 {
        assert_eq!(client.get(b"two").status, 503);
    }
    assert_eq!(client.put(b"three", b"3"), 201);
    assert_eq!(client.metric("millpond_entity_poisoned "), 0);
}

/// Goal: a read the engine cannot do is 503, not 404, inline and on a read thread.
#[test]
fn failed_read_is_not_an_absent_entity() {
    for cold in [false, true] {
        let faults = Faults {
            failed_reads: true,
            cold,
            ..Faults::default()
        };
        let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
        let server = TestServer::start(&store, |_, _| {});
        assert_eq!(server.connect().get(b"key").status, 503);
    }
}

/// Goal: the metrics name the engine that ran and count what was done.
#[test]
fn metrics_name_the_engine_and_count() {
    let (_directory, store) = rocksdb();
    let engine = store.engine();
    assert_eq!(engine.name, "rocksdb");
    let numbers: Vec<_> = engine.version.split('.').collect();
    assert!(
        numbers.len() == 3 && numbers.iter().all(|n| n.parse::<u32>().is_ok()),
        "{engine:?}"
    );
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    for id in 0..10_u8 {
        assert_eq!(client.put(&[id], b"v"), 201);
    }
    assert_eq!(client.delete(&[0]), 202);
    assert_eq!(client.get(&[0]).status, 404);
    assert_eq!(client.get(&[1]).status, 200);
    assert_eq!(client.metric("millpond_entity_puts_total "), 10);
    assert_eq!(client.metric("millpond_entity_deletes_total "), 1);
    assert_eq!(
        client.metric("millpond_entity_gets_total{result=\"hit\"}"),
        1
    );
    assert_eq!(
        client.metric("millpond_entity_gets_total{result=\"miss\"}"),
        1
    );
    assert_eq!(client.metric("millpond_entity_wal_syncs_total "), 11);
    assert_eq!(client.metric("millpond_entity_batch_jobs_total "), 11);
    let text = String::from_utf8(client.request("GET", "/metrics", b"").body).unwrap();
    let info = text
        .lines()
        .find(|line| line.starts_with("millpond_build_info{"))
        .unwrap();
    assert!(info.contains("engine=\"rocksdb\""), "{info}");
    assert!(
        info.contains(&format!("engine_version=\"{}\"", engine.version)),
        "{info}"
    );
    assert!(
        info.contains(&format!("engine_linkage=\"{}\"", engine.linkage)),
        "{info}"
    );
}

/// Goal: a graceful stop completes accepted requests.
#[test]
fn graceful_stop_answers_waiting_writes() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let mut server = TestServer::start(&store, |_, _| {});
    let mut idle = server.connect();
    assert_eq!(idle.get(b"last").status, 404);
    store.hold();
    let mut client = server.connect();
    client
        .send(&request("PUT", &target(b"last"), b"words"))
        .unwrap();
    wait_until(|| store.commits() == 1);
    server.begin_stop();
    // It closes idle connections when it stops: the write is still held then.
    assert_eq!(idle.read_reply(false).unwrap(), None);
    assert!(client.has_nothing());
    store.release();
    server.stop();
    assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
    let contents = store.inner().contents();
    let (_, value) = Head::split(&contents[&b"last"[..]]).unwrap();
    assert_eq!(value.whole(), Some(&b"words"[..]));
}
