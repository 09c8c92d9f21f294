//! A whole server: one thread, listener and service per shard, until a signal or its owner ends it.
//!
//! On the path: the command line calls [`serve`] and blocks in it. Listeners are bound on the
//! calling thread, so that a taken port is one clear error before any thread exists.
//!
//! Absent on purpose: anything shared between shards but the snapshots of their numbers, and
//! restarting a shard that failed: the others are stopped and the error is returned.

mod config;
mod departure;
mod metrics_server;
mod shard_server;
mod shards;
mod signals;
mod tls;
mod watch;

pub use config::{Reread, ServeConfig, ServeError, ServeReport, StatusPage};
pub use millpond_io::DriverChoice;
pub use shard_server::ShardServer;
pub use shards::{Running, serve_with};
pub use tls::{TLS_HANDSHAKE_BYTES_MAX, load_tls};

use crate::log;
use crate::service::{Service, ShardStart};
use millpond_io::{Address, ServiceState};
use shards::ControlEvent;
use signals::SignalWatch;
use std::error::Error;

/// Runs a server until SIGTERM or SIGINT, then drains it; a second signal ends it at once.
/// SIGUSR1 prints the pools' accounting on stderr; SIGHUP makes a server that speaks TLS read its
/// certificates again, and one with an access log open the file anew. `on_ready` is called once it
/// accepts.
pub fn serve<S, E>(
    config: &ServeConfig,
    make: impl Fn(ShardStart) -> Result<S, E> + Sync,
    on_ready: impl FnOnce(&Address),
) -> Result<ServeReport, ServeError>
where
    S: Service,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    // Before anything else: a signal that comes early must not kill a half-started server.
    let has_files = config.tls.is_some() || config.access_log.is_some() || config.reread.is_some();
    // A service manager sends SIGHUP to whatever it is told to reload; there is no terminal to end with.
    let rereads = has_files || config.service_manager.is_some();
    let signals = SignalWatch::install(rereads).map_err(ServeError::Signals)?;
    shards::run(config, make, |running, notices| {
        let forwarder = signals.forward_to(notices.sender())?;
        on_ready(running.local_address());
        let status = format!("listening on {}", running.local_address());
        let ready = ServiceState::Ready { status: &status };
        config.tell(ready);
        if let Some(manager) = &config.service_manager {
            log::show_errors_to(manager, &status);
        }
        shards::wait_for_end(running, notices, |event| match event {
            ControlEvent::RereadBegins => config.tell(ServiceState::Reloading),
            ControlEvent::RereadEnds => config.tell(ready),
            ControlEvent::StopBegins => config.tell(ServiceState::Stopping),
        });
        log::show_errors_to_no_manager();
        forwarder.stop();
        Ok(())
    })
}
