//! Clients that have to show a certificate of their own.

use super::{Files, https, stop};
use crate::support::{Server, eventually, millpond, run};
use std::fs;

/// curl's response with the certificate of this name; 0: it was refused.
fn status_for(files: &Files, server: &Server, name: Option<&str>, words: &[&str]) -> u16 {
    let shown = name.map(|name| {
        [
            "--cert".to_owned(),
            files.text(&format!("{name}.crt")),
            "--key".to_owned(),
            files.text(&format!("{name}.key")),
        ]
    });
    let shown: Vec<&str> = shown.iter().flatten().map(String::as_str).collect();
    let url = https(server, "/");
    files.curl(&[&shown, words, &[&*url]].concat()).0
}

/// Goal: in front of a proxy with `--tls-client-ca` only clients with a certificate of that authority get a response,
/// in either version of TLS and on both drivers; SIGHUP takes another authority.
#[test]
fn only_known_clients_are_let_in() {
    let files = Files::new();
    for name in ["known", "stranger"] {
        files.make(name, &["client"], 2100);
    }
    let upstream = Server::start(&["plaintext"]);
    let authorities = files.text("clients.pem");
    let trust = |name: &str| {
        fs::copy(files.text(&format!("{name}.crt")), &authorities).unwrap();
    };
    for driver in super::drivers() {
        trust("known");
        let pair = files.flags("server");
        let mut words = vec!["--upstream", &upstream.address, "--driver", driver];
        words.extend(["--tls-client-ca", &authorities]);
        words.extend(pair.iter().map(String::as_str));
        let proxy = Server::start_proxy(&words);
        for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
            let status = |name| status_for(&files, &proxy, name, version);
            assert_eq!(status(Some("known")), 200, "{driver} {version:?}");
            assert_eq!(status(Some("stranger")), 0, "{driver} {version:?}");
            assert_eq!(status(None), 0, "{driver} {version:?}");
        }
        trust("stranger");
        proxy.process.signal("HUP");
        eventually("the file is read again", || {
            status_for(&files, &proxy, Some("stranger"), &[]) == 200
        });
        assert_eq!(
            status_for(&files, &proxy, Some("known"), &[]),
            0,
            "{driver}"
        );
        stop(proxy);
    }
}

/// Goal: a file with no authority in it is said before anything listens.
#[test]
fn a_file_without_authorities_is_refused() {
    let files = Files::new();
    let empty = files.text("empty.pem");
    fs::write(&empty, "nothing\n").unwrap();
    let pair = files.flags("server");
    let mut words = vec!["serve", "plaintext", "--listen", "127.0.0.1:0"];
    words.extend(["--tls-client-ca", &empty]);
    words.extend(pair.iter().map(String::as_str));
    let finished = run(&mut millpond(&words));
    assert_ne!(finished.code(), 0);
    assert!(finished.sentence().contains("empty.pem"), "{finished:?}");
    assert_eq!(finished.stdout, "");
}
