//! `millpond serve entity --store cassandra://...`, or why it cannot be had.

use crate::flags::serve::CommonFlags;
use crate::output::Failure;
use millpond_entity::EntityConfig;
use millpond_entity::cluster_url::ClusterUrl;
use millpond_http::{ServeConfig, ServeReport};

#[cfg(feature = "distributed")]
pub(super) fn serve(
    url: &ClusterUrl,
    max_value: Option<u64>,
    entity: &EntityConfig,
    (http, common): (&ServeConfig, &CommonFlags),
) -> Result<ServeReport, Failure> {
    use crate::output;
    use millpond_entity::cluster::{ClusterEngine, VALUE_BYTES_MAX};
    use millpond_entity::{Engine as _, serve_cluster};

    if max_value.is_some_and(|max| max > VALUE_BYTES_MAX) {
        return Err(Failure::usage(
            "--max-value can be 1MiB at most with --store: every copy holds a write in memory as a whole",
        ));
    }
    let engine = std::sync::Arc::new(ClusterEngine::connect(url).map_err(Failure::failed)?);
    let (copies, conditions) = (engine.replicas(), engine.judges_conditions());
    serve_cluster(&engine, entity, http, |address, engine| {
        common.announce(address, http);
        let (name, version) = (engine.name, &engine.version);
        let conditions = if conditions { "with" } else { "without" };
        output::note(format!(
            "{name} {version} keeps the data in {url}: {copies} copies, {conditions} conditions"
        ));
    })
    .map_err(Failure::failed)
}

#[cfg(not(feature = "distributed"))]
pub(super) fn serve(
    url: &ClusterUrl,
    _max_value: Option<u64>,
    _entity: &EntityConfig,
    _http: (&ServeConfig, &CommonFlags),
) -> Result<ServeReport, Failure> {
    Err(Failure::usage(format!(
        "--store {url} is not in this build: build it with --features distributed"
    )))
}
