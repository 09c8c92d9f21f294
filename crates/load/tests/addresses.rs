//! Targets with several addresses: all are used in turn, and one that refuses is passed over.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_io::Address;
use millpond_load::{AddressUse, ConnectionPlan, LoadConfig, LoadError, LoadRecord, Stop};
use millpond_measure::record::LoadStatus;
use millpond_measure::report::wrk;
use std::net::{SocketAddr, TcpListener};
use support::{Reply, TestServer, check_identities, refusing_address, run, try_run};

/// GET at a target of these addresses over `connections`.
fn get_at(addresses: &[SocketAddr], connections: usize) -> LoadConfig {
    let mut config = support::get(addresses[0]);
    config.target.addresses = addresses.iter().copied().map(Address::Inet).collect();
    config.connections = connections;
    config.stop = Stop::after_requests(connections as u64 * 10);
    config
}

fn opened(record: &LoadRecord) -> Vec<u64> {
    record.addresses.iter().map(|one| one.opened).collect()
}

/// Only the first address of a name was used.
///
/// Goal: connections take the addresses in turn, the record and the text say so, and `first` uses the first alone.
#[test]
fn connections_take_the_addresses_in_turn() {
    let servers = [(); 3].map(|()| TestServer::start(|_| Reply::ok(b"x")));
    let addresses = servers.each_ref().map(|server| server.address);
    let record = run(&get_at(&addresses, 8));
    check_identities(&record);
    assert_eq!(opened(&record), [3, 3, 2]);
    assert_eq!(servers.each_ref().map(TestServer::connections), [3, 3, 2]);
    let text = wrk::clocks(&record.to_report()).replace("\n    ", " ");
    assert!(text.contains(&format!("{} took 3", addresses[1])), "{text}");

    let record = run(&LoadConfig {
        plan: ConnectionPlan {
            addresses: AddressUse::First,
            ..ConnectionPlan::default()
        },
        ..get_at(&addresses, 8)
    });
    assert_eq!(opened(&record), [8, 0, 0]);
    // One address needs no table.
    let record = run(&get_at(&addresses[..1], 2));
    assert!(record.addresses.is_empty());
}

/// A server on IPv4 alone, asked as `localhost`, which is ::1 first on many machines.
///
/// Goal: connections whose address refuses use the others, in either mode and either order of families; that is no
/// failure, and the run is OK.
#[test]
fn an_address_that_refuses_is_passed_over() {
    let (dead, _kept) = refusing_address();
    let server = TestServer::start(|_| Reply::ok(b"x"));
    for (addresses, expected) in [
        ([dead, server.address], [0, 5]),
        ([server.address, dead], [5, 0]),
    ] {
        for addresses_used in [AddressUse::All, AddressUse::First] {
            let mut config = get_at(&addresses, 5);
            config.plan.addresses = addresses_used;
            let record = run(&config);
            check_identities(&record);
            assert_eq!(opened(&record), expected);
            assert_eq!(record.errors.total(), 0, "{:?}", record.failures);
            let open = record.connections_open.unwrap();
            assert_eq!((open.at_start, open.at_end), (5, 5));
        }
    }
}

/// Goal: the same between families, with servers that listen on one alone. Machines without IPv6 have nothing to test.
#[test]
fn either_family_stands_in_for_the_other() {
    let Ok(v6) = TcpListener::bind("[::1]:0") else {
        eprintln!("not tested: no IPv6 here");
        return;
    };
    let v6 = TestServer::start_on(v6, |_| Reply::ok(b"x"));
    let v4 = TestServer::start(|_| Reply::ok(b"x"));
    let port_of = |server: &TestServer| server.address.port();
    for (server, place) in [(&v6, 0), (&v4, 1)] {
        let port = port_of(server);
        // Nothing listens on this port in the other family, as long as no other program takes it there.
        let addresses = [
            SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)),
            SocketAddr::from(([127, 0, 0, 1], port)),
        ];
        let record = run(&get_at(&addresses, 4));
        assert_eq!(opened(&record)[place], 4, "{:?}", record.addresses);
        assert_eq!(record.errors.total(), 0);
    }
}

/// Goal: a connection that is lost in the run is opened anew where it can be, and a target that refuses everywhere is
/// named with all of its addresses.
#[test]
fn a_target_that_refuses_everywhere_is_named_whole() {
    let [(one, _one_kept), (two, _two_kept)] = [(); 2].map(|()| refusing_address());
    let error = try_run(&get_at(&[one, two], 2)).unwrap_err();
    assert!(matches!(error, LoadError::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("{one} or {two}")), "{text}");

    let dying = TestServer::start(|_| Reply::ok(b"x"));
    let other = TestServer::start(|_| Reply::ok(b"x"));
    let mut config = get_at(&[dying.address, other.address], 2);
    config.stop = Stop::after_requests(2_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            dying.wait_for_requests(100);
            dying.die();
        });
        let record = run(&config);
        check_identities(&record);
        assert!(record.requests >= 1_990, "{:?}", record.errors);
        assert_ne!(
            record.verdict.status,
            LoadStatus::Invalid,
            "{:?}",
            record.verdict
        );
        assert_eq!(record.errors.connect, 0, "{:?}", record.failures);
    });
}
