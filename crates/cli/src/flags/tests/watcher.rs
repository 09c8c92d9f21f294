use super::*;
use millpond_io::connection_pool::HandshakeError;
use millpond_load::ConnectFailure;
use millpond_measure::record::LoadErrors;

/// Goal: a user who waits for connections sees how many are missing and why.
#[test]
fn the_opening_of_connections_is_shown() {
    let mut now = Connecting {
        open: 600,
        asked: 4_000,
        elapsed_ns: 2_000_000_000,
        last_failure: None,
    };
    let line = connecting_line(&now);
    assert_eq!(line, "connecting: 600 of 4000 connections open after 2 s");
    now.last_failure = Some(ConnectFailure::Handshake(HandshakeError::CertificateName));
    let line = connecting_line(&now);
    assert!(
        line.contains("TLS handshake failed: its certificate is for another name"),
        "{line}"
    );
}

/// Goal: one line says how far the run is, how it goes, and what fails.
#[test]
fn the_line_says_how_it_goes() {
    let now = millpond_load::Progress {
        completed: 2_000,
        rate_per_s: 500.0,
        errors: LoadErrors {
            read: 3,
            ..LoadErrors::default()
        },
        remaining_ns: Some(4_000_000_000),
        ..millpond_load::Progress::default()
    };
    let line = progress_line(&now, Some((2_500_000, 1_000)));
    for part in [
        "measuring: ",
        "p99 2.50 ms",
        "send delay p99 1.00 us",
        "3 errors",
        "4 s left",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let line = progress_line(&now, Some((2_500_000, 0)));
    assert!(!line.contains("delay"), "a closed loop has none: {line}");
    assert!(!progress_line(&now, None).contains("p99"));
}
