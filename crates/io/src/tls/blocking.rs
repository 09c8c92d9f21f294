//! TLS over one blocking socket: for commands that ask one request after another and wait for each answer.
//!
//! Records and buffers are rustls's own here: nothing of it is on a shard.

use super::client::TlsClient;
use rustls::{ClientConnection, StreamOwned};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// A connection whose handshake is over. What it waits for is bounded by the socket's timeouts.
pub struct BlockingTls(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Speaks TLS on a blocking socket, from the handshake on, which is done here.
    ///
    /// # Errors
    /// The socket's; or [`io::ErrorKind::InvalidData`], where the peer's certificate is not trusted or it speaks no TLS.
    pub fn over(&self, mut socket: TcpStream) -> io::Result<BlockingTls> {
        let connection = ClientConnection::new(self.config(), self.name());
        let mut connection = connection.map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(BlockingTls(StreamOwned::new(connection, socket)))
    }
}

impl Read for BlockingTls {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for BlockingTls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl fmt::Debug for BlockingTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("BlockingTls");
        fields.field("socket", &self.0.sock).finish_non_exhaustive()
    }
}
