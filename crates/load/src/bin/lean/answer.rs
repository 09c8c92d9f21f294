//! The common part of all responses, learned from the first.

use crate::Config;
use millpond_io::Address;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How each response begins. No more of the head is compared: the date in it changes.
pub(crate) const BEGINNING: &[u8] = b"HTTP/1.1 200 ";

/// How long a first response may take: a server under valgrind is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// No response that this client is for is longer.
const LEN_MAX: usize = 64 * 1024;

/// A response's length and its last bytes.
pub(crate) struct Answer {
    pub(crate) len: usize,
    pub(crate) body: Vec<u8>,
}

/// Asks once, on a connection of its own.
pub(crate) fn ask(config: &Config) -> Result<Answer, String> {
    let failed = |error: std::io::Error| format!("{:?}: {error}", config.address);
    let request = config.request();
    match &config.address {
        Address::Inet(address) => {
            let stream = TcpStream::connect(address).map_err(failed)?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
            exchange(stream, &request)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).map_err(failed)?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
            exchange(stream, &request)
        }
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> Result<Answer, String> {
    let failed = |error: std::io::Error| format!("the first response: {error}");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut bytes = vec![0; LEN_MAX];
    let mut len = 0;
    loop {
        if let Some((total, body_start)) = measure(&bytes[..len])?
            && total <= len
        {
            return Ok(Answer {
                len: total,
                body: bytes[body_start..total].to_vec(),
            });
        }
        let count = match stream.read(&mut bytes[len..]) {
            // A stopped process that continues finds its wait ended.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.map_err(failed)?,
        };
        match count {
            0 => return Err("the first response is cut off, or over 64 KiB".to_owned()),
            more => len += more,
        }
    }
}

/// A response's whole length and where its body begins; `None` while its head is not complete.
fn measure(bytes: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let Some(head_len) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&bytes[..head_len]);
    if !bytes.starts_with(BEGINNING) {
        let line = head.lines().next().unwrap_or_default();
        return Err(format!("the first response is {line}"));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.ok_or("the first response has no Content-Length")?;
    let body_start = head_len + 4;
    Ok(Some((body_start + length, body_start)))
}
