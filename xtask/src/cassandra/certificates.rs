//! Certificates for nodes and their clients, made anew for each cluster by openssl.
//!
//! Nodes are known in both ways that there are: the last one's certificate is for a host's name, those of the others are
//! for their addresses. Java reads PEM, with a key in front of its chain.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

/// `ca.pem` and what it has signed: `node1.pem` and so on, `client.crt` and `client.key`; and `stranger.*`, which
/// nobody has signed.
pub(super) fn make(directory: &Path, nodes: RangeInclusive<u8>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    sign(directory, "ca", &[])?;
    fs::rename(directory.join("ca.crt"), directory.join("ca.pem")).map_err(failed)?;
    sign(directory, "stranger", &[])?;
    let by_ca = [
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
    ];
    let last = *nodes.end();
    for number in nodes {
        let (name, host) = match number == last {
            true => (
                format!("node{number}"),
                "subjectAltName=DNS:localhost".to_owned(),
            ),
            false => (
                format!("node{number}"),
                format!("subjectAltName=IP:127.0.0.{number}"),
            ),
        };
        sign(directory, &name, &[&by_ca[..], &[&host]].concat())?;
        let read = |extension: &str| fs::read(directory.join(format!("{name}.{extension}")));
        let parts = [read("key").map_err(failed)?, read("crt").map_err(failed)?];
        fs::write(directory.join(format!("{name}.pem")), parts.concat()).map_err(failed)?;
    }
    let client = [&by_ca[..], &["extendedKeyUsage=clientAuth"]].concat();
    sign(directory, "client", &client)
}

/// Makes `NAME.key` and `NAME.crt`, signed by itself unless `words` say otherwise.
fn sign(directory: &Path, name: &str, words: &[&str]) -> Result<(), String> {
    let mut openssl = Command::new("openssl");
    openssl.current_dir(directory);
    openssl.args(["req", "-x509", "-newkey", "ec", "-days", "30", "-nodes"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-subj", &format!("/CN=millpond-test-{name}")]);
    openssl.args(["-keyout", &format!("{name}.key")]);
    openssl.args(["-out", &format!("{name}.crt")]).args(words);
    let output = openssl.output();
    let output = output.map_err(|error| format!("openssl cannot be run: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "openssl makes no certificate for {name}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
