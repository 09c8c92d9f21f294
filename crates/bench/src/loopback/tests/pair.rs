use super::*;

fn spec(pools: PoolSetting, driver: &str) -> PairSpec {
    PairSpec {
        connections: 20,
        requests: 2_000,
        threads: 2,
        request_bytes: 1_024,
        response_bytes: 740,
        pools,
        server_driver: driver.to_owned(),
        client_driver: driver.to_owned(),
    }
}

/// Goal: every request has a whole response, every connection is accepted once and carries its
/// part, and the figures of the parts add up; on both drivers, with pools and without.
#[test]
fn every_request_is_answered() {
    for (pools, driver) in [
        (PoolSetting::On, "auto"),
        (PoolSetting::Off, "auto"),
        (PoolSetting::On, "epoll"),
    ] {
        let spec = spec(pools, driver);
        assert_eq!(check(&spec), Ok(()));
        let sample = run(&spec, &|_| {}).unwrap();
        assert_eq!((sample.requests, sample.errors.total()), (2_000, 0));
        assert_eq!(sample.accepts, 20);
        assert_eq!(sample.accepts_by_thread.len(), 2);
        assert_eq!(sample.accepts_by_thread.iter().sum::<u64>(), 20);
        let spread = sample.per_connection;
        assert_eq!(spread.connections, 20);
        assert!((spread.mean - 100.0).abs() < 1e-9, "{spread:?}");
        assert!(spread.min <= 100 && spread.max >= 100 && spread.fairness <= 1.0 + 1e-12);
        assert_eq!(sample.latency_ns.count, 2_000);
        let in_seconds: u64 = sample.seconds.iter().map(|second| second.requests).sum();
        assert_eq!(in_seconds, 2_000);
        assert!(sample.cpu_ns > 0 && sample.requests_per_s > 0.0);
    }
}

/// Goal: a response of another length is a failure, not a success: the client counts on what was
/// agreed on.
#[test]
fn other_answers_are_failures() {
    let agreed = spec(PoolSetting::On, "epoll");
    let longer = PairSpec {
        response_bytes: agreed.response_bytes + 1,
        ..agreed.clone()
    };
    let mut found = None;
    serve(&longer, |running| {
        found = Some(drive(&agreed, running, &|_| {}));
    })
    .unwrap();
    let record = found.unwrap().unwrap();
    assert_eq!((record.requests, record.errors.validation), (0, 2_000));
}

/// Goal: more connections than descriptors is one sentence that says how many are needed.
#[test]
fn too_many_connections_are_refused() {
    let many = PairSpec {
        connections: 1 << 40,
        ..spec(PoolSetting::On, "epoll")
    };
    match getrlimit(Resource::Nofile).maximum {
        // Nothing to be refused by.
        None => assert_eq!(make_room_for_descriptors(&many), Ok(())),
        Some(_) => {
            let sentence = make_room_for_descriptors(&many).unwrap_err();
            assert!(sentence.contains("ulimit -Hn 2199023255680"), "{sentence}");
        }
    }
}
