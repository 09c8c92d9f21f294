use super::*;
use crate::cluster::{ClusterEngine, ClusterLogin, ClusterTls};
use millpond_io::tls::Trust;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// Frames of CQL, protocol 4: version, flags, stream, opcode, length, body.
const SUPPORTED: &[u8] = b"\x84\0\0\0\x06\0\0\0\x02\0\0";
const AUTHENTICATE: &[u8] = b"\x84\0\0\0\x03\0\0\0\x03\0\x01a";
/// An error: 0x0100, bad credentials.
const BAD_CREDENTIALS: &[u8] = b"\x84\0\0\0\0\0\0\0\x0a\0\0\x01\0\0\x04sent";
/// Cassandra's response to a TLS client on a plaintext port: an error, 0x000a, for an unknown protocol.
const PROTOCOL_ERROR: &[u8] = b"\x84\0\0\0\0\0\0\0\x0a\0\0\0\x0a\0\x04sent";
/// The response of TLS to a plaintext client: an alert.
const ALERT: &[u8] = b"\x15\x03\x03\0\x02\x02\x46";

/// The error of connecting to a node that sends these responses to the requests of each connection, and closes it.
fn connect(answers: &'static [&'static [u8]], security: &ClusterSecurity) -> ClusterError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Until the test's process ends: the driver decides how often it tries.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that went away.
            let _ = answer(&mut stream.unwrap(), answers);
        }
    });
    let url: ClusterUrl = format!("cassandra://{address}/k").parse().unwrap();
    ClusterEngine::connect(&url, security).unwrap_err()
}

fn answer(stream: &mut TcpStream, answers: &[&[u8]]) -> io::Result<()> {
    for answer in answers {
        let mut request = [0; 4096];
        // The driver sends each request in one piece, and waits for its response.
        let length = stream.read(&mut request)?;
        let mut answer = answer.to_vec();
        if answer.first() == Some(&0x84) && length >= 4 {
            answer[2..4].copy_from_slice(&request[2..4]);
        }
        stream.write_all(&answer)?;
    }
    Ok(())
}

fn with_password() -> ClusterSecurity {
    ClusterSecurity {
        login: Some(ClusterLogin {
            user: "reader".to_owned(),
            password: "secret".to_owned(),
        }),
        tls: None,
    }
}

/// Goal: a node that asks for a password, or does not take it, is distinguished from all other errors; and no message
/// shows the password.
#[test]
fn passwords_that_fail_are_told() {
    let asks: &[&[u8]] = &[SUPPORTED, AUTHENTICATE];
    let missing = connect(asks, &ClusterSecurity::default());
    assert!(
        matches!(missing, ClusterError::LoginMissing { .. }),
        "{missing}"
    );
    let refuses: &[&[u8]] = &[SUPPORTED, AUTHENTICATE, BAD_CREDENTIALS];
    let wrong = connect(refuses, &with_password());
    assert!(matches!(wrong, ClusterError::Login { .. }), "{wrong}");
    let sentence = wrong.to_string();
    assert!(
        sentence.contains("reader") && !sentence.contains("secret"),
        "{sentence}"
    );
}

/// Goal: plaintext towards TLS, and TLS towards plaintext, are reported, with the flag to remove or to add.
#[test]
fn the_other_protocol_is_told() {
    for answers in [&[ALERT][..], &[&[]]] {
        let clear = connect(answers, &ClusterSecurity::default());
        assert!(
            matches!(clear, ClusterError::NotPlaintext { .. }),
            "{clear}"
        );
    }
    let tls = ClusterSecurity {
        login: None,
        tls: Some(ClusterTls {
            trust: Trust::Anybody,
            identity: None,
            any_host: false,
        }),
    };
    let none = connect(&[PROTOCOL_ERROR], &tls);
    assert!(none.to_string().contains("leave --store-tls out"), "{none}");
}
