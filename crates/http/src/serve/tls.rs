//! What HTTP wants of TLS, and reading certificates again while serving.

use crate::limits::Limits;
use crate::log::{self, LogLevel};
use millpond_io::tls::{CertificateFiles, CertificateWarning, TlsError, TlsOptions, TlsServer};
use std::path::PathBuf;

/// What a client may send before its handshake is over: several times what the longest real ones
/// have, with keys of post-quantum size and a ticket.
pub const TLS_HANDSHAKE_BYTES_MAX: usize = 32 << 10;

/// The only protocol spoken here, as ALPN names it.
const PROTOCOL: &[u8] = b"http/1.1";

/// For a client that meant http:// and found this port.
const CLEAR_TEXT_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Connection: close\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 56\r\n\
    \r\n\
    this port speaks TLS: use https:// in the place of http\n";

/// Reads certificates and keys for a server with these limits: a handshake may take as long as a
/// head. The first pair is for clients that name no host, or none of the others'. With
/// `client_authorities`, clients have to show a certificate that one of them has signed.
pub fn load_tls(
    certificates: Vec<CertificateFiles>,
    client_authorities: Option<PathBuf>,
    limits: &Limits,
    handshake_bytes_max: usize,
) -> Result<(TlsServer, Vec<CertificateWarning>), TlsError> {
    TlsServer::load(TlsOptions {
        certificates,
        client_authorities,
        protocols: vec![PROTOCOL.to_vec()],
        clear_text_answer: CLEAR_TEXT_ANSWER,
        handshake_timeout_ns: limits.head_timeout_ns,
        handshake_bytes_max,
    })
}

/// Reads them again and tells how that went, in one line and one more for each doubt.
pub(super) fn reload(tls: &TlsServer) {
    match tls.reload() {
        Ok(warnings) => {
            let count = tls.certificate_count();
            let sentence =
                format!("read the certificates again ({count}); new connections get them");
            log::write(LogLevel::Info, sentence);
            for warning in warnings {
                log::write(LogLevel::Warn, warning);
            }
        }
        Err(error) => {
            let sentence = format!("the certificates stay as they were: {error}");
            log::write(LogLevel::Warn, sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the answer in clear text is as long as it says.
    #[test]
    fn the_answer_in_clear_text_is_whole() {
        let text = std::str::from_utf8(CLEAR_TEXT_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{}",
            body.len()
        );
    }
}
