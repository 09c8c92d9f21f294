use super::*;
use crate::waker::WakeReceiver;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Goal: families alternate, beginning with the system's first; order within one stays; doubles go.
#[test]
fn families_take_turns() {
    let found = addresses(&["[::1]:1", "[::2]:1", "1.1.1.1:1", "[::1]:1", "2.2.2.2:1"]);
    let ordered: Vec<_> = in_order(found).iter().map(ToString::to_string).collect();
    assert_eq!(ordered, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1"]);
    let found = addresses(&["1.1.1.1:1", "[::1]:1"]);
    let ordered: Vec<_> = in_order(found).iter().map(ToString::to_string).collect();
    assert_eq!(ordered, ["1.1.1.1:1", "[::1]:1"]);
    assert!(in_order(Vec::new()).is_empty());
    let many = (0..100).map(|port| SocketAddr::from(([1, 1, 1, 1], port)));
    assert_eq!(in_order(many.collect()).len(), ADDRESSES_MAX);
}

fn wait_for(client: &mut ResolverClient) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = client.next_answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no response");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Goal: results come back through the mailbox with a wake; the second one comes from the cache; the error for a name
/// without addresses contains the name.
#[test]
fn threads_answer_and_remember() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let config = ResolverConfig::default();
    let resolver = Resolver::with_lookup(config, move |host, port| {
        counted.fetch_add(1, Ordering::Relaxed);
        match host {
            "good.test" => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
            "empty.test" => Ok(Vec::new()),
            _ => Err(io::Error::other("no such host")),
        }
    })
    .unwrap();
    let wakes = WakeReceiver::new().unwrap();
    let mut client = resolver.client(wakes.waker());
    for round in 0..2 {
        client.ask(round, "good.test", 80).unwrap();
        let answer = wait_for(&mut client);
        assert_eq!(answer.id, round);
        assert_eq!(answer.result.unwrap()[0].to_string(), "127.0.0.1:80");
        assert!(answer.valid_ns <= config.good_ns && answer.valid_ns > 0);
        // A response lies in the mailbox a moment before its wake.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !wakes.take() {
            assert!(Instant::now() < deadline, "each response wakes");
            std::thread::yield_now();
        }
    }
    assert_eq!(
        lookups.load(Ordering::Relaxed),
        1,
        "the second is remembered"
    );
    for name in ["empty.test", "bad.test"] {
        client.ask(7, name, 80).unwrap();
        let error = wait_for(&mut client).result.unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// Goal: a lookup that panics gets an error and is counted, and its thread handles the next one.
#[test]
fn a_panicking_lookup_ends_no_thread() {
    let config = ResolverConfig {
        threads: 1,
        ..ResolverConfig::default()
    };
    let resolver = Resolver::with_lookup(config, |host, port| {
        assert!(host == "good.test", "planted panic");
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    })
    .unwrap();
    let wakes = WakeReceiver::new().unwrap();
    let mut client = resolver.client(wakes.waker());
    let before = panic_count();
    client.ask(1, "bad.test", 80).unwrap();
    let error = wait_for(&mut client).result.unwrap_err();
    assert!(matches!(error, ResolveError::Panicked { .. }), "{error}");
    assert!(panic_count() > before);
    client.ask(2, "good.test", 80).unwrap();
    assert!(wait_for(&mut client).result.is_ok());
}

/// Goal: the system's own resolver knows this machine.
#[test]
fn the_system_knows_localhost() {
    let resolver = Resolver::start(ResolverConfig::default()).unwrap();
    let wakes = WakeReceiver::new().unwrap();
    let mut client = resolver.client(wakes.waker());
    client.ask(1, "localhost", 80).unwrap();
    let addresses = wait_for(&mut client).result.unwrap();
    assert!(
        addresses
            .iter()
            .all(|a| a.inet().unwrap().ip().is_loopback())
    );
}
