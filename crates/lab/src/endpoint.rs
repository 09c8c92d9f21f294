//! Where a target listens: an address, in the lab's network or in one of the target's own.

use std::net::SocketAddr;
use std::sync::Arc;

use millpond_io::NetworkNamespace;

use crate::error::RunError;

/// An address and the network that it is in.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    namespace: Option<Arc<NetworkNamespace>>,
}

impl Endpoint {
    /// In the network of the lab.
    pub(crate) fn here(address: SocketAddr) -> Self {
        Self {
            address,
            namespace: None,
        }
    }

    /// In a network of its own, which is made.
    pub(crate) fn elsewhere(address: SocketAddr) -> Result<Self, RunError> {
        let namespace = NetworkNamespace::create().map_err(RunError::Network)?;
        Ok(Self {
            address,
            namespace: Some(Arc::new(namespace)),
        })
    }

    /// Does `act` in that network: connections that it opens and processes that it starts are there.
    pub(crate) fn within<T>(&self, act: impl FnOnce() -> T) -> Result<T, RunError> {
        match &self.namespace {
            None => Ok(act()),
            Some(namespace) => namespace.within(act).map_err(RunError::Network),
        }
    }
}
