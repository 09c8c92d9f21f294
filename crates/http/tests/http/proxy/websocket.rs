//! WebSocket through the proxy, between a client and a server that others wrote.

use super::proxy;
use millpond_http::Limits;
use millpond_http::proxy::UpgradeProtocols;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/websocket.py");

/// A Python that has `websockets`: the one in front, or Debian's.
fn python() -> Option<&'static str> {
    let has_it = |python: &&str| {
        let mut command = Command::new(python);
        let command = command
            .args(["-c", "import websockets"])
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_it)
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goal: messages of every size, in frames and compressed, pings and the close frame pass both ways; without permission
/// there is no change of protocol, and the client gets a response that shows it.
#[test]
fn web_sockets_pass() {
    let Some(python) = python() else {
        println!("SKIPPED: no Python here has websockets (scripts/setup test installs it)");
        return;
    };
    let mut server = Command::new(python)
        .args([SCRIPT, "serve"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = server.stdout.take().unwrap();
    let _server = Killed(server);
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let upstream = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap()));
    for upgrades in [true, false] {
        let (front, _control) = proxy(&[upstream], Limits::default(), |config| {
            if upgrades {
                config.upgrades = UpgradeProtocols::websocket();
            }
        });
        let port = front.address.port().to_string();
        let talked = Command::new(python)
            .args([SCRIPT, "talk", &port])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&talked.stderr);
        assert_eq!(talked.status.success(), upgrades, "{errors}");
    }
}
