//! Entries of the access log for requests that were passed on.

use super::{RawUpstream, refusing, upstream};
use crate::access_log::{logging, objects};
use crate::support::TestServer;
use millpond_http::proxy::{ProbePolicy, Proxy, ProxyConfig, ProxyControl};
use millpond_http::{AccessLogFormat, AccessLogTarget, Limits};
use millpond_io::Address;

/// A request that the proxy responds to itself; the rest is the value of its last field.
const OF_PROXY: &str = "OPTIONS /2 HTTP/1.1\r\nMax-Forwards: 0\r\nX-Rest:";

/// Asks through a proxy to these upstreams, each request over a connection of its own; the log.
fn log_of(format: AccessLogFormat, upstreams: &[Address], requests: &[&str]) -> Vec<u8> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access.log");
    let mut proxied = ProxyConfig::new(upstreams.iter().cloned().map(upstream).collect());
    proxied.retry_percent = 100;
    proxied.ejection.failures_max = 0;
    let control = ProxyControl::new(proxied, false, None).unwrap();
    let limits = Limits::default();
    let serve = logging(limits, AccessLogTarget::File(path.clone()), format);
    let server = TestServer::start(serve, move |start| Proxy::new(&control, &start, limits));
    for request in requests {
        let request = format!("{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut client = server.connect();
        client.send(request);
        client.rest();
    }
    server.stop();
    std::fs::read(path).unwrap()
}

/// An upstream that responds in two parts; to `/close` it sends nothing, to `/cut` half.
fn living() -> RawUpstream {
    RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            match head.split(' ').nth(1).unwrap() {
                "/close" => return,
                "/cut" => return peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfi"),
                _ => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"),
            }
        }
    })
}

/// Goal: each entry has the last upstream, the number of tries, and the side at fault; one that the proxy responded to
/// itself has none of these.
#[test]
fn json_tells_of_upstreams() {
    let directory = tempfile::tempdir().unwrap();
    let (living, dead) = (living(), refusing(&directory));
    let alive = Address::from(living.address);
    let asked = ["GET /1", "GET /2", OF_PROXY];
    let log = objects(&log_of(
        AccessLogFormat::Json,
        &[dead.clone(), alive.clone()],
        &asked,
    ));
    let name = living.address.to_string();
    let mut tries = Vec::new();
    for entry in &log[..2] {
        assert_eq!(
            (&entry["upstream"], &entry["status"]),
            (&name.clone().into(), &200.into())
        );
        assert!(entry["fault"].is_null(), "{entry}");
        let [connect, first_byte, total] =
            ["connect_us", "first_byte_us", "upstream_us"].map(|it| entry[it].as_u64().unwrap());
        assert!(connect + first_byte <= total + 1, "{entry}");
        assert!(total <= entry["duration_us"].as_u64().unwrap(), "{entry}");
        tries.push(entry["tries"].as_u64().unwrap());
    }
    let is_sound = tries.iter().all(|count| (1..=2).contains(count));
    assert!(
        is_sound && tries.contains(&2),
        "one of them began with the dead one: {tries:?}"
    );
    assert!(log[2].get("upstream").is_none(), "{}", log[2]);
    let asked = ["POST /close", "GET /cut"];
    let log = objects(&log_of(AccessLogFormat::Json, &[alive], &asked));
    for (entry, status) in log.iter().zip([502, 200]) {
        assert_eq!(entry["status"], status, "{entry}");
        assert_eq!(
            (&entry["fault"], &entry["tries"]),
            (&"upstream".into(), &1.into()),
            "{entry}"
        );
        assert_eq!(entry["complete"], status == 502, "{entry}");
    }
    let log = objects(&log_of(
        AccessLogFormat::Json,
        std::slice::from_ref(&dead),
        &["GET /"],
    ));
    assert_eq!(
        (&log[0]["upstream"], &log[0]["first_byte_us"]),
        (&dead.to_string().into(), &0.into())
    );
}

/// Goal: an entry of a request that went to no upstream has the side at fault: the client's, the proxy's, or the
/// upstreams' that are known to be down.
#[test]
fn what_went_nowhere_says_whose_fault_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let dead = refusing(&directory);
    let too_many = "Connection: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t\r\n";
    let broken = "GET /3 HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n";
    let whole =
        |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    for (format, expected) in [
        (AccessLogFormat::Json, ""),
        (AccessLogFormat::CombinedUpstream, " \"-\" - - - - client"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("access.log");
        let mut proxied = ProxyConfig::new(vec![upstream(dead.clone())]);
        proxied.probe = Some(ProbePolicy {
            failures_max: 1,
            ..ProbePolicy::new("/health")
        });
        let control = ProxyControl::new(proxied, false, None).unwrap();
        let limits = Limits::default();
        let serve = logging(limits, AccessLogTarget::File(path.clone()), format);
        let server = TestServer::start(serve, move |start| Proxy::new(&control, &start, limits));
        let ask = |request: &str| server.connect().ask(request).status;
        assert_eq!(ask(&whole("/1", too_many)), 400);
        assert_eq!(ask(broken), 400);
        assert_eq!(
            ask(&whole("/2", "Max-Forwards: 0\r\n").replace("GET", "OPTIONS")),
            204
        );
        // Until the probe has found the upstream down, it is asked, and refuses.
        while ask(&whole("/down", "")) != 503 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        server.stop();
        let log = std::fs::read(path).unwrap();
        if !expected.is_empty() {
            let text = String::from_utf8(log).unwrap();
            let lines: Vec<_> = text.lines().take(2).collect();
            assert!(lines.iter().all(|line| line.ends_with(expected)), "{text}");
            continue;
        }
        let log = objects(&log);
        for entry in &log[..2] {
            assert_eq!(
                (&entry["fault"], &entry["tries"]),
                (&"client".into(), &0.into())
            );
            assert!(entry["upstream"].is_null(), "{entry}");
        }
        assert!(log[2].get("fault").is_none(), "{}", log[2]);
        let last = log.last().unwrap();
        assert_eq!(
            (&last["fault"], &last["status"]),
            (&"upstream".into(), &503.into())
        );
        assert_eq!(
            (&last["upstream"], &last["tries"]),
            (&serde_json::Value::Null, &0.into())
        );
    }
}

/// Goal: the addition to combined has as many fields whether there was an upstream or not, and stands
/// behind what every reader of combined knows.
#[test]
fn combined_has_an_addition() {
    let living = living();
    let alive = [Address::from(living.address)];
    let asked = ["GET /1", "POST /close", OF_PROXY];
    let log = log_of(AccessLogFormat::CombinedUpstream, &alive, &asked);
    let plain = log_of(AccessLogFormat::Combined, &alive, &asked);
    let text = String::from_utf8(log).unwrap();
    let name = living.address.to_string();
    for (line, (upstream, tries, fault)) in text.lines().zip([
        (&*name, "1", "-"),
        (&*name, "1", "upstream"),
        ("-", "-", "-"),
    ]) {
        let (_, added) = line.rsplit_once("\" \"").unwrap();
        let fields: Vec<&str> = added.split(' ').collect();
        assert_eq!(fields.len(), 6, "{line}");
        assert_eq!(fields[0].trim_end_matches('"'), upstream, "{line}");
        assert_eq!((fields[1], fields[5]), (tries, fault), "{line}");
    }
    for line in String::from_utf8(plain).unwrap().lines() {
        assert!(
            line.ends_with("\"-\" \"-\""),
            "combined stays what it is: {line}"
        );
    }
}
