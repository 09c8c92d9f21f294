//! Servers on the cluster that `cargo xtask cassandra` has started, each with a keyspace of its own.
//!
//! Without one (`MILLPOND_CASSANDRA` is not set) there are none, and the tests play their scenes on the
//! other engines alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond_entity::EntityConfig;
use millpond_entity::cluster::{ClusterEngine, ClusterUrl};
use millpond_entity::serve_cluster_with;
use millpond_http::ServeConfig;

use super::TestServer;

/// A new keyspace of three copies, made with `settings`.
pub(crate) fn new_url(settings: &str) -> Option<ClusterUrl> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nodes = std::env::var("MILLPOND_CASSANDRA").ok()?;
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let text = format!("cassandra://{nodes}/t{process}_{count}?create=3&{settings}");
    Some(text.parse().unwrap())
}

/// Connects and serves.
pub(crate) fn serve(
    url: &ClusterUrl,
    adjust: impl FnOnce(&mut EntityConfig, &mut ServeConfig),
) -> TestServer {
    let engine = Arc::new(ClusterEngine::connect(url).unwrap());
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
