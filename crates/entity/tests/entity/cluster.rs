//! Behavior that differs with a cluster: how many copies respond, and the effect of one of three nodes not responding.
//! Common behavior is tested by `api`, `records` and `range`.

mod nodes;
mod secured;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::cluster::{new_url, on_nodes, security, serve};
use crate::support::{Client, Reply, TestServer, request_with, target, wait_until};
use millpond_entity::EntityError;
use millpond_entity::cluster::{ClusterEngine, ClusterError, ClusterUrl};
use millpond_entity::{Engine as _, serve_cluster_with};
use nodes::{all_nodes, no_others};
use serde_json::Value;

fn url(settings: &str) -> ClusterUrl {
    new_url(settings).expect("cargo bench-suite cassandra says where the nodes are")
}

/// With a word about replicas.
fn ask(client: &mut Client, method: &str, id: &str, replicas: &str, body: &[u8]) -> Reply {
    let target = format!("/v0/entity?id={id}&replicas={replicas}");
    client.request(method, &target, body)
}

/// Goal: each number of copies that there is can be requested, by every call; every other one is 400 with the reason,
/// and changes nothing.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn replicas_are_what_there_are() {
    let _nodes = all_nodes();
    let server = serve(&url("buckets=4"), |_, _| {});
    let mut client = server.connect();
    for replicas in ["1/3", "2/3", "3/3", "2%2F3"] {
        assert_eq!(ask(&mut client, "PUT", "k", replicas, b"v").status, 201);
        // One copy that responds may not have what two have acknowledged.
        let read = if replicas == "1/3" { "3/3" } else { replicas };
        assert_eq!(ask(&mut client, "GET", "k", read, b"").body, b"v");
        assert_eq!(ask(&mut client, "HEAD", "k", read, b"").status, 200);
        let range = format!("/v0/entities?start=a&replicas={read}");
        client
            .send(&crate::support::request("GET", &range, b""))
            .unwrap();
        assert_eq!(client.read_reply(true).unwrap().unwrap().status, 200);
        assert_eq!(client.read_chunks().unwrap(), [b"k\nv"]);
        assert_eq!(ask(&mut client, "DELETE", "k", replicas, b"").status, 202);
        assert_eq!(ask(&mut client, "GET", "k", "3/3", b"").status, 404);
    }
    assert_eq!(client.put(b"k", b"kept"), 201);
    for replicas in [
        "0/3", "4/3", "1/1", "2/2", "3/4", "2/5", "x", "2", "", "3/3/3",
    ] {
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let refused = ask(&mut client, method, "k", replicas, b"");
            assert_eq!(refused.status, 400, "{method} {replicas}");
            assert!(method == "HEAD" || !refused.body.is_empty());
        }
        let range = format!("/v0/entities?start=a&replicas={replicas}");
        assert_eq!(client.request("GET", &range, b"").status, 400);
        assert_eq!(client.request("HEAD", &range, b"").status, 400);
    }
    assert_eq!(client.get(b"k").body, b"kept");
}

/// Goal: a keyspace keeps its creation settings; a server that expects others, or a missing keyspace, fails before it
/// serves.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn keyspaces_stay_what_they_are() {
    let _nodes = all_nodes();
    let made = url("buckets=8&conditions=on");
    let absent = ClusterUrl {
        create: None,
        ..made.clone()
    };
    let error = ClusterEngine::connect(&absent, &security()).unwrap_err();
    assert!(matches!(error, ClusterError::NoKeyspace { .. }), "{error}");

    let engine = ClusterEngine::connect(&made, &security()).unwrap();
    assert_eq!(engine.replicas(), 3);
    assert!(engine.judges_conditions());
    assert_eq!(engine.engine().name, "cassandra");
    let again = ClusterEngine::connect(&absent, &security()).unwrap();
    assert_eq!(again.engine(), engine.engine());
    for (other, name) in [
        (
            ClusterUrl {
                create: Some(2),
                ..made.clone()
            },
            "copies",
        ),
        (
            ClusterUrl {
                buckets: Some(9),
                ..absent.clone()
            },
            "buckets",
        ),
        (
            ClusterUrl {
                conditions: Some(false),
                ..absent.clone()
            },
            "conditions",
        ),
    ] {
        match ClusterEngine::connect(&other, &security()).unwrap_err() {
            ClusterError::Setting { name: found, .. } => assert_eq!(found, name),
            error => panic!("{name}: {error}"),
        }
    }
    let nobody: ClusterUrl = "cassandra://127.0.0.1:1/k".parse().unwrap();
    let error = ClusterEngine::connect(&nobody, &security()).unwrap_err();
    assert!(matches!(error, ClusterError::Connect { .. }), "{error}");
}

/// Goal: a connection is served once, and never with checkpoints, which it could not make.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn what_a_cluster_lacks_is_refused() {
    let _nodes = all_nodes();
    let engine = Arc::new(ClusterEngine::connect(&url("buckets=1"), &security()).unwrap());
    let http = millpond_http::ServeConfig::new("entity", "127.0.0.1:0".parse().unwrap());
    let mut config = millpond_entity::EntityConfig::new("unused".into());
    config.checkpoints = Some(std::env::temp_dir());
    let refused = serve_cluster_with(&engine, &config, &http, |_| panic!("it serves"));
    let is_refused = matches!(
        refused,
        Err(EntityError::Cluster(ClusterError::Checkpoints))
    );
    assert!(is_refused);
    config.checkpoints = None;
    serve_cluster_with(&engine, &config, &http, |_| {}).unwrap();
    let refused = serve_cluster_with(&engine, &config, &http, |_| panic!("it serves"));
    assert!(matches!(
        refused,
        Err(EntityError::Cluster(ClusterError::Served))
    ));
}

/// Goal: where the keyspace has no conditions, a write that depends on one is refused and does nothing;
/// reads compare tags as ever. Values have a limit, and one at it goes through.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn limits_of_plain_keyspaces() {
    let _nodes = all_nodes();
    let server = serve(&url("buckets=4"), |_, _| {});
    let mut client = server.connect();
    let mut send = |method: &str, fields: &str, body: &[u8]| {
        let bytes = request_with(method, &target(b"k"), fields, body);
        client.send(&bytes).unwrap();
        client.read_reply(false).unwrap().unwrap()
    };
    assert_eq!(send("PUT", "If-None-Match: *\r\n", b"x").status, 501);
    assert_eq!(send("GET", "", b"").status, 404);
    let put = send("PUT", "", b"first");
    assert_eq!(put.status, 201);
    let fields = format!("If-Match: {}\r\n", put.field("ETag").unwrap());
    assert_eq!(send("PUT", &fields, b"x").status, 501);
    assert_eq!(send("DELETE", &fields, b"").status, 501);
    assert_eq!(send("GET", &fields, b"").body, b"first");
    let fields = fields.replace("If-Match", "If-None-Match");
    assert_eq!(send("GET", &fields, b"").status, 304);

    let largest = vec![7; 1 << 20];
    assert_eq!(client.put(b"large", &largest), 201);
    assert!(client.get(b"large").body == largest);
    let mut other = server.connect();
    other
        .send(&crate::support::request(
            "PUT",
            &target(b"larger"),
            &[&largest[..], b"x"].concat(),
        ))
        .unwrap();
    assert_eq!(other.read_reply(false).unwrap().unwrap().status, 413);
    assert_eq!(client.get(b"larger").status, 404);
}

/// Goal: a write the cluster rejects is not reported as possibly done.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn a_table_that_is_gone_is_no_timeout() {
    let _nodes = all_nodes();
    let url = url("buckets=1");
    let server = serve(&url, |_, _| {});
    let mut client = server.connect();
    assert_eq!(client.put(b"k", b"v"), 201);
    let drop = format!("DROP TABLE {}.entities", url.keyspace);
    on_nodes(&url, &security(), &drop);
    assert_eq!(client.put(b"k", b"w"), 500);
    assert_eq!(client.delete(b"k"), 500);
    assert_eq!(client.get(b"k").status, 503);
    assert_eq!(
        client.request("GET", "/v0/entities?start=a", b"").status,
        503
    );
    for method in ["PUT", "DELETE"] {
        assert!(is_described(&server, method, "/v0/entity", 500));
    }
}

/// Goal: a stop completes accepted requests, and clients that are gone delay nothing.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn a_stop_answers_what_waits() {
    let _nodes = all_nodes();
    let url = url("buckets=1&conditions=on");
    let server = serve(&url, |_, _| {});
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let put = crate::support::request("PUT", &target(format!("s{n}").as_bytes()), b"v");
        client.send(&put).unwrap();
    }
    let mut watch = server.connect();
    // All of one partition: they wait for each other.
    wait_until(|| {
        let done = watch.metric("millpond_entity_puts_total ");
        done + watch.metric("millpond_entity_jobs_in_flight ") >= 20
    });
    clients.truncate(15);
    server.stop();
    let mut answered = 0;
    for client in &mut clients {
        if let Ok(Some(reply)) = client.read_reply(false) {
            assert_eq!(reply.status, 201);
            answered += 1;
        }
    }
    assert_eq!(answered, 15);
}

/// Goal: of two servers on one keyspace, each reads the other's acknowledged writes, at once, and a third one when both
/// are gone.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn servers_share_a_keyspace() {
    let _nodes = all_nodes();
    let url = url("buckets=4");
    let (one, two) = (serve(&url, |_, _| {}), serve(&url, |_, _| {}));
    let mut clients = [one.connect(), two.connect()];
    let mut tags = std::collections::HashSet::new();
    for round in 0..40 {
        let value = round.to_string().into_bytes();
        let reply = clients[round % 2].request("PUT", &target(b"k"), &value);
        assert_eq!(reply.status, 201);
        assert!(tags.insert(reply.field("ETag").unwrap().to_owned()));
        for client in &mut clients {
            assert_eq!(client.get(b"k").body, value);
        }
    }
    one.stop();
    two.stop();
    let three = serve(&url, |_, _| {});
    assert_eq!(three.connect().get(b"k").body, b"39");
}

/// Acknowledged before a node dies, and at least as many behind it.
const ROUND_WRITES: u64 = 100;

/// A client that writes its own ids until it is stopped; returns the last acknowledged round of each id, and the last
/// tried. All acknowledged writes are counted.
fn write_on(
    server: &TestServer,
    number: usize,
    end: &AtomicBool,
    count: &AtomicU64,
) -> Vec<(u64, u64)> {
    let mut client = server.connect();
    let mut rounds = vec![(0, 0); 20];
    for round in 1.. {
        for (n, (acknowledged, tried)) in rounds.iter_mut().enumerate() {
            if end.load(Ordering::SeqCst) {
                return rounds;
            }
            *tried = round;
            let id = format!("{number}-{n}");
            match client.put(id.as_bytes(), round.to_string().as_bytes()) {
                201 => {
                    *acknowledged = round;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                // It may be there, or come to be there. Nodes that start need the processors.
                504 => std::thread::sleep(Duration::from_millis(20)),
                status => panic!("{id}: {status}"),
            }
        }
    }
    unreachable!("it ends when it is told to")
}

fn read(client: &mut Client, id: &str, replicas: &str) -> u64 {
    let reply = ask(client, "GET", id, replicas, b"");
    assert_eq!(
        reply.status,
        200,
        "{id}: {}",
        String::from_utf8_lossy(&reply.body)
    );
    String::from_utf8(reply.body).unwrap().parse().unwrap()
}

fn is_described(server: &TestServer, method: &str, path: &str, status: u16) -> bool {
    let reply = server.connect().request("GET", "/openapi.json", b"");
    let description: Value = serde_json::from_slice(&reply.body).unwrap();
    let responses = &description["paths"][path][method.to_lowercase()]["responses"];
    responses[status.to_string()].is_object()
}

/// Four clients write; `meanwhile` gets a function that waits for more acknowledged writes, and then they end. Returns
/// each one's acknowledged and tried rounds.
fn write_while(server: &TestServer, meanwhile: impl FnOnce(&dyn Fn())) -> Vec<Vec<(u64, u64)>> {
    let end = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    let more = || {
        let before = count.load(Ordering::Relaxed);
        wait_until(|| count.load(Ordering::Relaxed) >= before + ROUND_WRITES);
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|number| {
                let (end, count) = (&end, &count);
                scope.spawn(move || write_on(server, number, end, count))
            })
            .collect();
        meanwhile(&more);
        end.store(true, Ordering::SeqCst);
        let ended = writers.into_iter().map(|writer| writer.join().unwrap());
        ended.collect()
    })
}

/// Goal: a node dies in the middle of writing: a quorum goes on, and nothing that it acknowledged is lost; all three
/// are 504, which is neither success nor a promise that nothing was done; when the node is back, all three respond, and
/// have everything.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn a_node_dies_and_comes_back() {
    let nodes = no_others();
    for settings in ["buckets=16", "buckets=16&conditions=on"] {
        let server = serve(&url(settings), |_, http| http.shards = 2);
        let rounds = write_while(&server, |more| {
            more();
            nodes.kill(3);
            // A quorum goes on.
            more();
        });
        let mut client = server.connect();
        check_all(&mut client, &rounds, "2/3");
        one_down(&server);
        assert_eq!(client.put(b"while it is away", b"1"), 201);

        nodes.start(3);
        wait_until(|| ask(&mut client, "PUT", "back", "3/3", b"7").status == 201);
        wait_until(|| ask(&mut client, "GET", "back", "3/3", b"").status == 200);
        check_all(&mut client, &rounds, "3/3");
        assert_eq!(read(&mut client, "while%20it%20is%20away", "3/3"), 1);
    }
}

/// Goal: all nodes die in the middle of writing: nothing is 201 until they are back, every response is correct, and
/// acknowledged writes are there afterwards, by the same server, which finds them again.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra"]
fn all_nodes_die_and_come_back() {
    let nodes = no_others();
    for settings in ["buckets=16", "buckets=16&conditions=on"] {
        let server = serve(&url(settings), |_, http| http.shards = 2);
        let rounds = write_while(&server, |more| {
            more();
            for number in 1..=3 {
                nodes.kill(number);
            }
            let mut client = server.connect();
            for method in ["PUT", "GET", "DELETE"] {
                let reply = ask(&mut client, method, "k", "2/3", b"v");
                assert_eq!(reply.status, 504, "{method}");
                assert!(!reply.body.is_empty(), "{method}");
            }
            let range = client.request("GET", "/v0/entities?start=a", b"");
            assert_eq!(range.status, 504);
            let mut status = || client.request("GET", "/v0/status", b"").status;
            wait_until(|| status() == 503);
            for number in 1..=3 {
                nodes.start(number);
            }
            more();
            wait_until(|| status() == 200);
        });
        check_all(&mut server.connect(), &rounds, "2/3");
    }
}

/// The acknowledged value is there, or one tried after it.
fn check_all(client: &mut Client, rounds: &[Vec<(u64, u64)>], replicas: &str) {
    let mut count = 0;
    for (number, rounds) in rounds.iter().enumerate() {
        for (n, (acknowledged, tried)) in rounds.iter().enumerate() {
            if *acknowledged > 0 {
                let found = read(client, &format!("{number}-{n}"), replicas);
                let possible = *acknowledged..=*tried;
                assert!(
                    possible.contains(&found),
                    "{number}-{n}: {found}, {possible:?}"
                );
                count += acknowledged;
            }
        }
    }
    assert!(count > 0, "nothing was acknowledged");
    println!("{count} acknowledged writes are there, {replicas}");
}

/// Two of three respond.
fn one_down(server: &TestServer) {
    let mut client = server.connect();
    for replicas in ["1/3", "2/3"] {
        assert_eq!(ask(&mut client, "PUT", "k", replicas, b"5").status, 201);
        assert_eq!(read(&mut client, "k", "2/3"), 5);
    }
    // Of an id in each partition, so that the node has copies of it, as it has of all.
    for (method, status) in [("PUT", 504), ("GET", 504), ("DELETE", 504), ("HEAD", 504)] {
        let reply = ask(&mut client, method, "k", "3/3", b"6");
        assert_eq!(reply.status, status, "{method}");
        assert!(is_described(server, method, "/v0/entity", 504));
    }
    let range = "/v0/entities?start=a&replicas=3/3";
    assert_eq!(client.request("GET", range, b"").status, 504);
    assert!(is_described(server, "GET", "/v0/entities", 504));
    assert!(is_described(server, "PUT", "/v0/entity", 501));
    assert!(is_described(server, "DELETE", "/v0/entity", 501));
    assert_eq!(client.request("GET", "/v0/status", b"").status, 200);
    assert!(client.metric("millpond_entity_too_few_replicas_total ") >= 5);
    // A quorum does not know writes with 504: they may be there or not.
    let after = ask(&mut client, "GET", "k", "2/3", b"");
    assert!(matches!(after.status, 200 | 404), "{}", after.status);
}
