//! The requests in a string that a script returned: how many, and with which methods.
//!
//! On the path: the host sends a script's bytes as they are, but has to know how many answers to
//! wait for and how each is framed (none has a body after HEAD). Counted for each string anew, so a
//! script may pipeline as it likes. Absent on purpose: judging. What wrk's parser lets pass leaves.
use crate::config::PIPELINE_MAX;
use memchr::memchr;
use millpond_http::Method;

/// Why a string cannot be sent: nobody could say which answers belong to it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum BatchError {
    /// A place where no request can be recognised.
    #[error("{problem} at {line}:{column}")]
    Malformed {
        problem: &'static str,
        line: usize,
        column: usize,
    },
    /// More than a connection may have in flight.
    #[error(
        "it holds more than {PIPELINE_MAX} requests, the most that may be on their way on a \
         connection: return fewer at a time"
    )]
    TooMany,
}

/// How closely fields are looked at that say nothing about a request's length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Look {
    /// Each has to be one: for the first request of a script, which is to find its mistakes.
    Close,
    /// Not at all: for those that leave.
    Brief,
}

/// Fills `methods` with those of the requests in `bytes`, in order.
pub(super) fn split(bytes: &[u8], look: Look, methods: &mut Vec<Method>) -> Result<(), BatchError> {
    methods.clear();
    let mut scan = Scan { bytes, at: 0, look };
    loop {
        scan.skip_blank_lines();
        if scan.at == bytes.len() && !methods.is_empty() {
            return Ok(());
        }
        let request = scan.request();
        let method = request.map_err(|problem| scan.malformed(problem))?;
        if methods.len() == PIPELINE_MAX {
            return Err(BatchError::TooMany);
        }
        methods.push(method);
    }
}

const INCOMPLETE: &str = "incomplete request";

/// How long a request's body is.
enum BodyLen {
    Bytes(usize),
    Chunked,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    look: Look,
}

impl<'a> Scan<'a> {
    fn malformed(&self, problem: &'static str) -> BatchError {
        let read = &self.bytes[..self.at];
        let line_start = read.iter().rposition(|&byte| byte == b'\n');
        BatchError::Malformed {
            problem,
            line: 1 + read.iter().filter(|&&byte| byte == b'\n').count(),
            column: 1 + read.len() - line_start.map_or(0, |at| at + 1),
        }
    }

    fn skip_blank_lines(&mut self) {
        while let Some(b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// The next line without its end.
    fn line(&mut self) -> Result<&'a [u8], &'static str> {
        let rest = &self.bytes[self.at..];
        let Some(end) = memchr(b'\n', rest) else {
            self.at = self.bytes.len();
            return Err(INCOMPLETE);
        };
        self.at += end + 1;
        let line = &rest[..end];
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn skip(&mut self, count_bytes: usize) -> Result<(), &'static str> {
        if count_bytes > self.bytes.len() - self.at {
            self.at = self.bytes.len();
            return Err(INCOMPLETE);
        }
        self.at += count_bytes;
        Ok(())
    }

    fn request(&mut self) -> Result<Method, &'static str> {
        let start = self.at;
        let line = self.line()?;
        let Some(method) = method_of(line) else {
            self.at = start;
            return Err("this is no request line, which is METHOD PATH HTTP/1.1");
        };
        match self.fields()? {
            BodyLen::Bytes(count) => self.skip(count)?,
            BodyLen::Chunked => self.chunks()?,
        }
        Ok(method)
    }

    fn fields(&mut self) -> Result<BodyLen, &'static str> {
        let mut body = BodyLen::Bytes(0);
        loop {
            let start = self.at;
            let line = self.line()?;
            // Of all fields only these two matter, and few others begin like them.
            match line.first() {
                None => return Ok(body),
                Some(b'c' | b'C') => {
                    if let Some(value) = value_of(line, b"content-length") {
                        let length = std::str::from_utf8(value).ok();
                        let length = length.and_then(|text| text.parse().ok());
                        let Some(length) = length else {
                            self.at = start;
                            return Err("this Content-Length is no number");
                        };
                        if matches!(body, BodyLen::Bytes(_)) {
                            body = BodyLen::Bytes(length);
                        }
                    }
                }
                Some(b't' | b'T') => {
                    if let Some(value) = value_of(line, b"transfer-encoding")
                        && value.to_ascii_lowercase().ends_with(b"chunked")
                    {
                        body = BodyLen::Chunked;
                    }
                }
                Some(_) => {}
            }
            if self.look == Look::Close && memchr(b':', line).is_none() {
                self.at = start;
                return Err("this is no header field, which is Name: value");
            }
        }
    }

    fn chunks(&mut self) -> Result<(), &'static str> {
        loop {
            let start = self.at;
            let line = self.line()?;
            let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
            let size = std::str::from_utf8(digits.trim_ascii()).ok();
            let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
            match size {
                Some(0) => break,
                Some(size) => self.skip(size)?,
                None => {
                    self.at = start;
                    return Err("this is no size of a chunk");
                }
            }
            if !self.line()?.is_empty() {
                return Err("a chunk is longer than its size says");
            }
        }
        while !self.line()?.is_empty() {}
        Ok(())
    }
}

/// The method of `METHOD TARGET HTTP/1.x`.
fn method_of(line: &[u8]) -> Option<Method> {
    let token_end = memchr(b' ', line)?;
    let (token, rest) = (&line[..token_end], &line[token_end + 1..]);
    let target = rest[..rest.len().checked_sub(1)?].strip_suffix(b" HTTP/1.")?;
    let is_request = !token.is_empty()
        && token.iter().all(u8::is_ascii_graphic)
        && !target.is_empty()
        && rest.last().is_some_and(u8::is_ascii_digit);
    is_request.then(|| Method::from_token(token))
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    found
        .eq_ignore_ascii_case(name)
        .then_some(value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(text: &str) -> Result<Vec<Method>, String> {
        let mut methods = Vec::new();
        split(text.as_bytes(), Look::Close, &mut methods).map_err(|error| error.to_string())?;
        Ok(methods)
    }

    #[test]
    fn every_request_of_a_string_is_found() {
        let get = "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n";
        let post = "POST / HTTP/1.1\r\ncontent-LENGTH:  18\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let chunked = "PUT / HTTP/1.0\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n\
                       A;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";
        let head = "HEAD / HTTP/1.1\nTE: trailers\nCookie: c\n\n";
        let own = "BREW /pot HTTP/1.1\r\n\r\n";
        let all = format!("{get}{post}\r\n{chunked}{head}{own}\r\n");
        assert_eq!(
            methods(&all),
            Ok(vec![
                Method::Get,
                Method::Post,
                Method::Put,
                Method::Head,
                Method::Extension
            ])
        );
    }

    /// Goal: what would leave a connection waiting for ever is refused, with its place.
    #[test]
    fn what_is_not_whole_is_refused_with_its_place() {
        for (text, part) in [
            ("", "incomplete request at 1:1"),
            ("GET / HTTP/1.1\r\nHost: x\r\n", "incomplete request at 3:1"),
            (
                "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcd",
                "incomplete request at 4:5",
            ),
            (
                "\r\nGET /\r\n\r\n",
                "no request line, which is METHOD PATH HTTP/1.1 at 2:1",
            ),
            (" / HTTP/1.1\r\n\r\n", "no request line"),
            ("GET  HTTP/1.1\r\n\r\n", "no request line"),
            (
                "GET / HTTP/1.1\r\nnonsense\r\n\r\n",
                "no header field, which is Name: value at 2:1",
            ),
            (
                "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                "no number at 2:1",
            ),
            (
                "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                "size of a chunk at 4:1",
            ),
            (
                "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
                "longer than its size",
            ),
            ("GET / HTTP/1.1\r\n\r\nx", "incomplete request at 3:2"),
        ] {
            let error = methods(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_connection_has_room_for_so_many() {
        let get = "GET / HTTP/1.1\r\n\r\n";
        assert_eq!(
            methods(&get.repeat(PIPELINE_MAX)).unwrap().len(),
            PIPELINE_MAX
        );
        let error = methods(&get.repeat(PIPELINE_MAX + 1)).unwrap_err();
        assert!(error.contains("more than 1024"), "{error}");
    }
}
