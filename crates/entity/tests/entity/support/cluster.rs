//! Servers on the cluster that `cargo bench-suite cassandra` has started, each with a keyspace of its own.
//!
//! Without one (`MILLPOND_CASSANDRA` is not set) there are none, and the tests play their scenes on the
//! other engines alone. Where the nodes have certificates (`cargo bench-suite cassandra secured`), every connection shows one,
//! and a password.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use millpond_entity::EntityConfig;
use millpond_entity::cluster::{
    ClusterEngine, ClusterError, ClusterLogin, ClusterSecurity, ClusterTls, ClusterUrl,
};
use millpond_entity::serve_cluster_with;
use millpond_http::ServeConfig;
use millpond_io::tls::{CertificateFiles, NodeNames, Trust, client_of_nodes};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

use super::TestServer;

/// A new keyspace of three copies, made with `settings`.
pub(crate) fn new_url(settings: &str) -> Option<ClusterUrl> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nodes = std::env::var("MILLPOND_CASSANDRA").ok()?;
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let text = format!("cassandra://{nodes}/t{process}_{count}?create=3&{settings}");
    Some(text.parse().unwrap())
}

/// One of the files that `cargo bench-suite cassandra secured` has made.
pub(crate) fn certificate(name: &str) -> PathBuf {
    let home = std::env::var_os("MILLPOND_CASSANDRA_HOME");
    let home = PathBuf::from(home.expect("cargo bench-suite cassandra says where they are"));
    home.join("tls").join(name)
}

/// With what text and bytes a password may have.
const PASSWORD: &str = "p\u{e4}ss '\"w\u{f6}rd' \\";

/// Conditions of the nodes.
pub(crate) fn security() -> ClusterSecurity {
    if !certificate("ca.pem").exists() {
        return ClusterSecurity::default();
    }
    let security = ClusterSecurity {
        login: Some(ClusterLogin {
            user: "millpond".to_owned(),
            password: PASSWORD.to_owned(),
        }),
        tls: Some(ClusterTls {
            trust: Trust::File(certificate("ca.pem")),
            identity: Some(CertificateFiles {
                certificate: certificate("client.crt"),
                key: certificate("client.key"),
            }),
            any_host: false,
        }),
    };
    static USER: OnceLock<()> = OnceLock::new();
    USER.get_or_init(|| make_user(&security));
    security
}

/// By the user that every new cluster has, once it has it: a few seconds after its start.
fn make_user(security: &ClusterSecurity) {
    let mut first = security.clone();
    first.login = Some(ClusterLogin {
        user: "cassandra".to_owned(),
        password: "cassandra".to_owned(),
    });
    let nowhere = "cassandra://127.0.0.1,127.0.0.2,localhost/absent";
    let nowhere: ClusterUrl = nowhere.parse().unwrap();
    let start = Instant::now();
    while let Err(error) = ClusterEngine::connect(&nowhere, &first) {
        if let ClusterError::NoKeyspace { .. } = error {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{error}");
        std::thread::sleep(Duration::from_secs(1));
    }
    let password = PASSWORD.replace('\'', "''");
    let make =
        format!("CREATE ROLE IF NOT EXISTS millpond WITH PASSWORD = '{password}' AND LOGIN = true");
    on_nodes(&nowhere, &first, &make);
}

/// Runs one statement beside all servers.
pub(crate) fn on_nodes(url: &ClusterUrl, security: &ClusterSecurity, statement: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let session = session(url, security).await;
        session.query_unpaged(statement, ()).await.unwrap();
    });
}

async fn session(url: &ClusterUrl, security: &ClusterSecurity) -> Session {
    let mut session = SessionBuilder::new().known_nodes(&url.nodes);
    if let Some(login) = &security.login {
        session = session.user(&login.user, &login.password);
    }
    let config = security.tls.as_ref().map(|tls| {
        let names = NodeNames::Listed(url.hosts());
        client_of_nodes(&tls.trust, tls.identity.as_ref(), &names).unwrap()
    });
    session.tls_context(config).build().await.unwrap()
}

/// Connects and serves.
pub(crate) fn serve(
    url: &ClusterUrl,
    adjust: impl FnOnce(&mut EntityConfig, &mut ServeConfig),
) -> TestServer {
    let engine = Arc::new(ClusterEngine::connect(url, &security()).unwrap());
    TestServer::launch(adjust, move |config, http, control| {
        serve_cluster_with(&engine, config, http, control).unwrap()
    })
}

/// Plays a scene on the cluster, if there is one, with two shards.
pub(crate) fn play(settings: &str, scene: impl FnOnce(&TestServer)) {
    if let Some(url) = new_url(settings) {
        scene(&serve(&url, |_, http| http.shards = 2));
    }
}
