//! Nodes that speak TLS, and ask for a certificate and a password: which clients are refused, and with what message.

use millpond_entity::cluster::{
    ClusterEngine, ClusterError, ClusterLogin, ClusterSecurity, ClusterTls, ClusterUrl,
};
use millpond_io::tls::{CertificateFiles, Trust};

use super::nodes::all_nodes;
use super::url;
use crate::support::cluster::{certificate, security, serve};

/// Why `change` of what the nodes want to see is not enough, or is.
fn attempt(
    url: &ClusterUrl,
    change: impl FnOnce(&mut ClusterSecurity),
) -> Result<(), ClusterError> {
    let mut security = security();
    change(&mut security);
    ClusterEngine::connect(url, &security).map(drop)
}

fn tls(security: &mut ClusterSecurity) -> &mut ClusterTls {
    security.tls.as_mut().expect("the nodes speak TLS")
}

/// Goal: a missing password, a wrong one, or another name is reported, with the remedy; no message contains the
/// password.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra secured"]
fn passwords_are_asked_for() {
    let _nodes = all_nodes();
    let url = url("buckets=1");
    attempt(&url, |_| {}).unwrap();
    let missing = attempt(&url, |security| security.login = None).unwrap_err();
    assert!(
        matches!(missing, ClusterError::LoginMissing { .. }),
        "{missing}"
    );
    for (user, password) in [
        ("millpond", "secret"),
        ("nobody", "secret"),
        ("millpond", ""),
    ] {
        let login = ClusterLogin {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        let wrong = attempt(&url, |security| security.login = Some(login)).unwrap_err();
        assert!(matches!(wrong, ClusterError::Login { .. }), "{wrong}");
        let sentence = wrong.to_string();
        assert!(
            sentence.contains(user) && !sentence.contains("secret"),
            "{sentence}"
        );
    }
}

/// Goal: a node is accepted by a certificate of the authority for its address or for a host of the URL, and no other; a
/// client without a certificate, or with a foreign one, gets the node's requirement.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra secured"]
fn certificates_are_checked_on_both_sides() {
    let _nodes = all_nodes();
    let made = url("buckets=1");
    attempt(&made, |_| {}).unwrap();
    let at = |nodes: &str| -> ClusterUrl {
        let text = format!("cassandra://{nodes}/{}", made.keyspace);
        text.parse().unwrap()
    };
    attempt(&at("127.0.0.1"), |_| {}).unwrap();
    // Its certificate is for localhost.
    attempt(&at("127.0.0.3,localhost"), |_| {}).unwrap();
    attempt(&at("127.0.0.3"), |security| tls(security).any_host = true).unwrap();
    let stranger = |security: &mut ClusterSecurity| {
        tls(security).identity = Some(CertificateFiles {
            certificate: certificate("stranger.crt"),
            key: certificate("stranger.key"),
        });
    };
    let by_another = |security: &mut ClusterSecurity| {
        tls(security).trust = Trust::File(certificate("stranger.crt"));
    };
    let by_another_for_any_host = |security: &mut ClusterSecurity| {
        by_another(security);
        tls(security).any_host = true;
    };
    for (nodes, change, part) in [
        (
            "127.0.0.3",
            &(|_: &mut _| {}) as &dyn Fn(&mut ClusterSecurity),
            "--store-any-host",
        ),
        ("127.0.0.1", &by_another, "--store-ca"),
        ("127.0.0.1", &by_another_for_any_host, "--store-ca"),
        (
            "127.0.0.1",
            &|security| tls(security).identity = None,
            "--store-cert",
        ),
        ("127.0.0.1", &stranger, "--store-cert"),
    ] {
        let refused = attempt(&at(nodes), change).unwrap_err();
        let is_told =
            matches!(&refused, ClusterError::Handshake { cause, .. } if cause.contains(part));
        assert!(is_told, "{part}: {refused}");
    }
    let clear = attempt(&at("127.0.0.1"), |security| security.tls = None).unwrap_err();
    assert!(
        matches!(clear, ClusterError::NotPlaintext { .. }),
        "{clear}"
    );
}

/// Goal: all nodes are spoken with, those that the URL does not name too.
#[test]
#[ignore = "takes a cluster: cargo bench-suite cassandra secured"]
fn all_nodes_are_reached() {
    let _nodes = all_nodes();
    let server = serve(&url("buckets=8"), |_, _| {});
    let mut client = server.connect();
    for n in 0..20 {
        let target = format!("/v0/entity?id={n}&replicas=3/3");
        assert_eq!(client.request("PUT", &target, b"v").status, 201);
    }
    assert!(server.connect().metric("millpond_entity_puts_total ") >= 20);
}
