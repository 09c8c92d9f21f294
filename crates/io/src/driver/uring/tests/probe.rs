//! Results of the probe, also for a kernel that lacks or forbids a feature.
//!
//! Kernels lack things in three ways, and each is put on here as it is met: a system call that a
//! filter refuses, an operation that the kernel does not name, and flags of the set-up that it does
//! not know (those in `ring.rs`, since no filter can see them).

use super::refusing::{Call, REGISTER_BUFFER_RING, REGISTER_PROBE, REGISTER_RINGS, Refusal};
use super::*;

/// Goal: each way to be refused is distinguished and has a remedy.
#[test]
fn refusals_say_what_to_do() {
    assert_eq!(unavailable(Errno::NOSYS), UringUnavailable::Absent);
    assert_eq!(
        unavailable(Errno::MFILE),
        UringUnavailable::OutOfResources {
            error: Errno::MFILE
        }
    );
    let sentence = UringUnavailable::Disabled { value: 2 }.to_string();
    assert!(
        sentence.contains("sysctl kernel.io_uring_disabled=0"),
        "{sentence}"
    );
    let sentence = unavailable(Errno::PERM).to_string();
    assert!(
        sentence.contains("seccomp") || sentence.contains("io_uring_disabled"),
        "{sentence}"
    );
}

/// Goal: each combination of receive features that the kernel takes delivers in order; the
/// probe must not hang on those it does not.
#[test]
fn every_way_of_receiving_is_tried() {
    let Ok(found) = probe() else { return };
    for without in [
        &[][..],
        &[DriverFeature::IncrementalBuffers],
        &[
            DriverFeature::IncrementalBuffers,
            DriverFeature::MultishotReceive,
        ],
    ] {
        let features = without.iter().fold(found, |set, f| set.without(*f));
        let mut ring = Ring::new(features, 8).unwrap();
        assert!(
            delivers_in_order(&mut ring, features).unwrap(),
            "{features}"
        );
    }
}

/// Goal: each operation that a shard cannot do without is asked for, and named when it is missing.
#[test]
fn a_missing_operation_is_named() {
    assert_eq!(require_operations(|_| true), Ok(()));
    for (missing, lacks) in NEEDED {
        let why = require_operations(|code| code != missing).unwrap_err();
        assert_eq!(why, UringUnavailable::TooOld { lacks });
        assert!(why.to_string().ends_with(lacks), "{why}");
    }
}

/// Result of the probe while `refusal` holds; `None`: no io_uring on this machine, or no filters.
fn probe_under(refusal: Refusal) -> Option<Result<DriverFeatures, UringUnavailable>> {
    probe().ok()?;
    refusal.during(probe_kernel)
}

/// Goal: with one of its calls gone, as under a container's filter or on another kernel, there is
/// no io_uring, and the reason is the right one.
#[test]
fn a_refused_call_is_no_io_uring() {
    let too_old = |lacks| UringUnavailable::TooOld { lacks };
    let forbidden = UringUnavailable::Forbidden { error: Errno::PERM };
    for (call, error, expected) in [
        (Call::Setup, Errno::NOSYS, UringUnavailable::Absent),
        (Call::Setup, Errno::PERM, forbidden),
        (
            Call::Setup,
            Errno::NOMEM,
            UringUnavailable::OutOfResources {
                error: Errno::NOMEM,
            },
        ),
        (Call::Enter, Errno::PERM, forbidden),
        (
            Call::Register(REGISTER_PROBE),
            Errno::INVAL,
            too_old("a probe of its operations (Linux 5.6)"),
        ),
        (Call::Register(REGISTER_PROBE), Errno::PERM, forbidden),
        (
            Call::Register(REGISTER_PROBE),
            Errno::NOMEM,
            UringUnavailable::OutOfResources {
                error: Errno::NOMEM,
            },
        ),
        (
            Call::Register(REGISTER_BUFFER_RING),
            Errno::INVAL,
            NO_BUFFER_RING,
        ),
    ] {
        let Some(outcome) = probe_under(Refusal { call, error }) else {
            return;
        };
        assert_eq!(outcome, Err(expected), "{call:?} answers {error}");
    }
}

/// Goal: optional features are left out, and nothing else.
#[test]
fn a_refused_extra_is_left_out() {
    for (call, missing) in [
        (
            Call::Register(REGISTER_RINGS),
            DriverFeature::RegisteredRing,
        ),
        (Call::EnterUntil, DriverFeature::AbsoluteTimeouts),
    ] {
        let Some(outcome) = probe_under(Refusal {
            call,
            error: Errno::INVAL,
        }) else {
            return;
        };
        assert_eq!(outcome, probe().map(|found| found.without(missing)));
    }
}

/// A tick with a socket, and whether something was received although the peer has sent.
fn tick_with_a_socket() -> Result<bool, crate::IoError> {
    use crate::driver::{Driver, Event};
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let mut driver = crate::driver::uring::UringDriver::new(PoolMode::On)?;
    let mut pools = crate::ShardPools::new(PoolMode::On);
    driver.connect(&crate::Address::Inet(address))?;
    let (mut peer, _) = listener.accept().expect("the driver connects");
    peer.write_all(b"waits").expect("it is connected");
    let mut is_received = false;
    for _ in 0..10 {
        let deadline_ns = driver.now_ns() + 1_000_000;
        driver.tick(Some(deadline_ns), &mut pools, |_, _, event| {
            is_received |= matches!(event, Event::Received { .. });
        })?;
    }
    Ok(is_received)
}

/// The table of receive buffers is made known anew when sockets come after a pause. The shard ended, and the server
/// with it, if the kernel had no memory for that.
///
/// Goal: a refused table is waited for, as are buffers that the pool has not.
#[test]
fn a_shard_outlives_a_refused_table_of_buffers() {
    if probe().is_err() {
        return;
    }
    assert_eq!(tick_with_a_socket(), Ok(true));
    let refusal = Refusal {
        call: Call::Register(REGISTER_BUFFER_RING),
        error: Errno::NOMEM,
    };
    if let Some(outcome) = refusal.during(tick_with_a_socket) {
        assert_eq!(outcome, Ok(false));
    }
}
