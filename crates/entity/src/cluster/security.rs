//! How this process authenticates itself to the nodes and verifies them, and the meaning of failures.
//!
//! Place: `worker` connects with it. The driver knows nodes by their addresses alone, and learns further ones from the
//! first; certificates are mostly for names. So a certificate is accepted for the node's address, or for any host of
//! the URL: these are all the same cluster. A connection lives as long as its node, so a new password or certificate
//! requires a restart in any case.

use std::io;

use millpond_io::tls::{NodeNames, TlsFailure, client_of_nodes};
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    BrokenConnectionError, BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError,
    ConnectionSetupRequestErrorKind, DbError, MetadataError, NewSessionError,
};
use scylla::frame::frame_errors::FrameHeaderParseError;

use super::{ClusterError, ClusterSecurity, ClusterUrl};

/// Gives the driver what it needs for that.
pub(super) fn secure(
    mut session: SessionBuilder,
    url: &ClusterUrl,
    security: &ClusterSecurity,
) -> Result<SessionBuilder, ClusterError> {
    if let Some(login) = &security.login {
        session = session.user(&login.user, &login.password);
    }
    Ok(session.tls_context(tls_config(url, security)?))
}

/// The TLS configuration for the nodes; `None`: plaintext.
pub(super) fn tls_config(
    url: &ClusterUrl,
    security: &ClusterSecurity,
) -> Result<Option<impl Into<scylla::client::session::TlsContext> + use<>>, ClusterError> {
    let Some(tls) = &security.tls else {
        return Ok(None);
    };
    let names = match tls.any_host {
        true => NodeNames::Any,
        false => NodeNames::Listed(url.hosts()),
    };
    let config = client_of_nodes(&tls.trust, tls.identity.as_ref(), &names);
    let config = config.map_err(|error| ClusterError::Tls(error.to_string()))?;
    Ok(Some(config))
}

/// Why no node let this process in.
pub(super) fn refusal(
    error: &NewSessionError,
    url: &ClusterUrl,
    security: &ClusterSecurity,
) -> ClusterError {
    let last = last_attempt(error);
    let refusal = last.and_then(|last| of_attempt(last, url, security));
    refusal.unwrap_or_else(|| ClusterError::Connect {
        url: url.to_string(),
        // Without what the driver was about to do with the connection.
        cause: last.map_or_else(|| error.to_string(), ToString::to_string),
    })
}

fn last_attempt(error: &NewSessionError) -> Option<&ConnectionError> {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
            ConnectionPoolError::Broken {
                last_connection_error,
            },
        )) => Some(last_connection_error),
        _ => None,
    }
}

/// `None`: neither certificates nor passwords had a part in it.
fn of_attempt(
    error: &ConnectionError,
    url: &ClusterUrl,
    security: &ClusterSecurity,
) -> Option<ClusterError> {
    let url = url.to_string();
    let request = match error {
        ConnectionError::IoError(error) => return of_io(error, url),
        ConnectionError::BrokenConnection(error) => return of_broken(error, url, security),
        ConnectionError::ConnectionSetupRequestError(error) => error.get_error(),
        _ => return None,
    };
    match (request, &security.login) {
        (ConnectionSetupRequestErrorKind::MissingAuthentication, _) => {
            Some(ClusterError::LoginMissing { url })
        }
        (
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, _),
            Some(login),
        ) => Some(ClusterError::Login {
            url,
            user: login.user.clone(),
        }),
        (ConnectionSetupRequestErrorKind::BrokenConnection(error), _) => {
            of_broken(error, url, security)
        }
        _ => None,
    }
}

/// The connection was made, and ended before it was of use: with TLS 1.3 that is also when a node does not like the
/// certificate that it was shown.
fn of_broken(
    error: &BrokenConnectionError,
    url: String,
    security: &ClusterSecurity,
) -> Option<ClusterError> {
    let failed = match error.downcast_ref::<BrokenConnectionErrorKind>()? {
        BrokenConnectionErrorKind::WriteError(error) => of_io(error, url.clone()),
        BrokenConnectionErrorKind::FrameHeaderParseError(FrameHeaderParseError::HeaderIoError(
            error,
        )) => of_io(error, url.clone()),
        BrokenConnectionErrorKind::FrameHeaderParseError(_) => None,
        _ => return None,
    };
    match failed {
        None if security.tls.is_none() => Some(ClusterError::NotPlaintext { url }),
        failed => failed,
    }
}

fn of_io(error: &io::Error, url: String) -> Option<ClusterError> {
    let cause = match TlsFailure::of_io_error(error)? {
        TlsFailure::CertificateName => {
            "the certificate of a node is neither for its address nor for a host of --store: name the host that it is \
             for there, or give --store-any-host"
        }
        TlsFailure::CertificateAuthority => {
            "the certificate of a node is of an authority that is not trusted here: give the authority's with --store-ca"
        }
        TlsFailure::CertificateExpired => {
            "the certificate of a node has expired or is not valid yet: renew it, or set the clock"
        }
        TlsFailure::PeerAlert => {
            "a node refused it: it may ask for a certificate (--store-cert, --store-key), or not trust the one it got"
        }
        TlsFailure::NotTls | TlsFailure::Malformed => {
            "what a node sends is no TLS: leave --store-tls out, or give the port on which it speaks it"
        }
        _ => {
            let cause = error.to_string();
            return Some(ClusterError::Handshake { url, cause });
        }
    };
    Some(ClusterError::Handshake {
        url,
        cause: cause.to_owned(),
    })
}

#[cfg(test)]
#[path = "tests/security.rs"]
mod tests;
