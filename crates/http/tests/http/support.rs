//! A real server on a free port, and a client that speaks raw bytes to it.

use millpond_http::{
    DriverChoice, FieldValue, Flow, Interest, Limits, Request, Response, Running, ServeConfig,
    ServeReport, Service, ServiceContext, ShardStart, StatusCode, StreamEvent, serve_with,
};
use millpond_mempool::{Checks, PoolMode};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Once;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Long enough for the slowest machine; reaching it is a failure, never a measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs until dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) running: Running,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<ServeReport>>,
}

/// Every mode of the pools in which all requests are served.
pub(crate) const MODES: [PoolMode; 5] = [
    PoolMode::On,
    PoolMode::ArenaOnly,
    PoolMode::Off,
    PoolMode::Checked(Checks {
        guard_pages: false,
        fail_at: None,
    }),
    PoolMode::Checked(Checks {
        guard_pages: true,
        fail_at: None,
    }),
];

/// The mode of all tests that are about something else: `on`, or that of the environment variable
/// `MILLPOND_TEST_POOLS`, so that the whole suite can be run in any.
pub(crate) fn pool_mode() -> PoolMode {
    std::env::var("MILLPOND_TEST_POOLS").map_or(PoolMode::On, |text| text.parse().unwrap())
}

/// The driver of all tests: `auto`, or that of the environment variable `MILLPOND_TEST_DRIVER`.
pub(crate) fn driver() -> DriverChoice {
    std::env::var("MILLPOND_TEST_DRIVER").map_or(DriverChoice::Auto, |text| text.parse().unwrap())
}

pub(crate) fn config(limits: Limits, pool_mode: PoolMode) -> ServeConfig {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    ServeConfig {
        limits,
        pool_mode,
        driver: driver(),
        ..ServeConfig::new("test", listen)
    }
}

impl TestServer {
    pub(crate) fn start<S: Service>(
        config: ServeConfig,
        make: impl Fn(ShardStart) -> S + Send + Sync + 'static,
    ) -> Self {
        raise_descriptor_limit();
        let (up_sender, up) = channel();
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            serve_with(
                &config,
                |start| Ok::<_, Infallible>(make(start)),
                |running| {
                    up_sender.send(running.clone()).unwrap();
                    let _ = stopped.recv();
                },
            )
            .unwrap()
        });
        let running = up.recv_timeout(PATIENCE).expect("the server did not start");
        let address = running.local_address().inet().unwrap();
        Self {
            address,
            running,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn with_limits<S: Service>(
        limits: Limits,
        make: impl Fn(ShardStart) -> S + Send + Sync + 'static,
    ) -> Self {
        Self::start(config(limits, pool_mode()), make)
    }

    /// A server that goes before its clients do: no other server gets its address.
    pub(crate) fn to_be_gone<S: Service>(
        limits: Limits,
        make: impl Fn(ShardStart) -> S + Send + Sync + 'static,
    ) -> Self {
        let mut config = config(limits, pool_mode());
        config.listen = own_loopback().into();
        Self::start(config, make)
    }

    /// The text of `/metrics`, from the listener that it has.
    pub(crate) fn metrics_text(&self) -> String {
        let own = self
            .running
            .metrics_address()
            .and_then(millpond_io::Address::inet);
        let mut client = RawClient::connect(own.unwrap_or(self.address));
        let answer = client.ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.status, 200);
        answer.text()
    }

    pub(crate) fn connect(&self) -> RawClient {
        RawClient::connect(self.address)
    }

    /// Asks for a graceful stop and waits for its end.
    pub(crate) fn stop(mut self) -> ServeReport {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap()
    }

    /// Asks for a graceful stop and returns at once.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            self.running.request_abort();
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the server panicked"
            );
        }
    }
}

/// Waits for something that another thread or process does; [`PATIENCE`] without it is a failure.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends until nothing more is taken for a while, since the kernel's buffers grow as they fill; how much was.
/// A look that comes too soon has sent less.
pub(crate) fn send_until_refused(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut refused_count) = (0, 0);
    while refused_count < 50 && sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(count) => {
                sent += count;
                refused_count = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refused_count += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    stream.set_nonblocking(false).unwrap();
    sent
}

/// A port that refuses for as long as the socket is there, which is bound and does not listen.
pub(crate) fn refusing_port() -> (SocketAddr, OwnedFd) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    (address, socket)
}

/// A loopback address that no other process uses: when a server has gone no other process listens on its port.
fn own_loopback() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64 + high, middle, low], 0))
}

/// As many descriptors as this process may have, since the servers and the clients of several tests may be
/// in it.
fn raise_descriptor_limit() {
    static RAISED: Once = Once::new();
    RAISED.call_once(millpond_io::raise_descriptor_limit);
}

/// A response as it stood on the wire.
#[derive(Debug, Clone, Eq, PartialEq)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl RawResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Raw bytes over a real socket; reads responses by an independent, simple-minded parser.
pub(crate) struct RawClient<S = TcpStream> {
    pub(crate) stream: S,
    received: Vec<u8>,
}

impl RawClient {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

impl<S: Read + Write> RawClient<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self {
            stream,
            received: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// One more receive; false at the end of the stream.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 65536];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                true
            }
            Err(error) => panic!("read failed: {error}"),
        }
    }

    fn take_head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.received.split_off(end + 4);
                let head = std::mem::replace(&mut self.received, rest);
                return Some(String::from_utf8(head).unwrap());
            }
            if !self.fill() {
                assert!(self.received.is_empty(), "cut: {:?}", self.received);
                return None;
            }
        }
    }

    /// The next response; `None` at the end of the stream.
    pub(crate) fn try_response(&mut self, is_head: bool) -> Option<RawResponse> {
        let head = self.take_head()?;
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = RawResponse {
            status,
            head,
            body: Vec::new(),
        };
        if is_head || status < 200 {
            return Some(response);
        }
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = self.take_chunks();
        } else {
            let length = response.header("content-length");
            response.body = self.take(length.map_or(0, |n| n.parse().unwrap()));
        }
        Some(response)
    }

    /// The next bytes, exactly so many.
    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            assert!(self.fill(), "cut at {} of {count}", self.received.len());
        }
        let rest = self.received.split_off(count);
        std::mem::replace(&mut self.received, rest)
    }

    fn take_line(&mut self) -> String {
        loop {
            if let Some(end) = self.received.windows(2).position(|w| w == b"\r\n") {
                let mut line = self.take(end + 2);
                line.truncate(end);
                return String::from_utf8(line).unwrap();
            }
            assert!(self.fill(), "cut in a line");
        }
    }

    /// A chunked body, joined, with its trailer lines behind it.
    fn take_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.take_line(), 16).unwrap();
            body.extend(self.take(size));
            if size == 0 {
                break;
            }
            assert_eq!(self.take_line(), "", "a chunk is longer than its size");
        }
        loop {
            match self.take_line() {
                line if line.is_empty() => return body,
                line => body.extend(format!("{line}\n").bytes()),
            }
        }
    }

    /// All there is until the peer closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.received)
    }

    pub(crate) fn response(&mut self) -> RawResponse {
        self.try_response(false)
            .expect("the connection closed instead of answering")
    }

    pub(crate) fn response_to_head(&mut self) -> RawResponse {
        self.try_response(true)
            .expect("the connection closed instead of answering")
    }

    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> RawResponse {
        self.send(request);
        self.response()
    }

    /// The server has closed, with bytes of ours unread or not.
    pub(crate) fn expect_reset_or_end(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            Ok(count) => assert_eq!((count, self.received.len()), (0, 0)),
        }
    }

    /// The peer must close without another byte.
    pub(crate) fn expect_end(&mut self) {
        assert!(
            !self.fill_or_reset(),
            "unexpected: {:?}",
            String::from_utf8_lossy(&self.received)
        );
        assert!(
            self.received.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&self.received)
        );
    }

    fn fill_or_reset(&mut self) -> bool {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("the connection stayed open: {error}"),
        }
    }
}

/// Responds with the request received, for checks: method, target, body.
pub(crate) struct Echo;

impl Service for Echo {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let head = [
            request.method_token(),
            b" ",
            request.target().as_bytes(),
            b"\n",
        ]
        .concat();
        let body = request.take_body(&context.pools.blocks).unwrap();
        let text = context
            .pools
            .arena
            .alloc_slice(head.len() + body.len())
            .unwrap();
        text[..head.len()].copy_from_slice(&head);
        text[head.len()..].copy_from_slice(&body);
        response
            .send(StatusCode::OK, Some(FieldValue::OCTET_STREAM), text)
            .unwrap();
        Flow::Done
    }
}

/// The byte at any place of every large body here, so that a lost or doubled part shows.
fn byte_at(place: u64) -> u8 {
    (place ^ place >> 8 ^ place >> 17) as u8
}

pub(crate) fn pattern(start: u64, len: usize) -> Vec<u8> {
    (start..).take(len).map(byte_at).collect()
}

/// Counts an upload and responds with its length, or goes on with a download of so many bytes. The state of the request
/// is the number of bytes passed.
pub(crate) fn pass_body(
    event: &StreamEvent<'_>,
    response: &mut Response<'_>,
    context: &mut ServiceContext<'_>,
    download_bytes: u64,
) -> Flow {
    match event {
        StreamEvent::Body(bytes) => {
            context.state += bytes.len() as u64;
            Flow::Stream(Interest::BODY)
        }
        StreamEvent::BodyEnd { .. } => {
            let text = context.state.to_string();
            response
                .send(StatusCode::OK, None, text.as_bytes())
                .unwrap();
            Flow::Done
        }
        StreamEvent::Room | StreamEvent::Resumed => {
            let left_bytes = (download_bytes - context.state) as usize;
            let part = [b'd'; 32 << 10];
            let part = &part[..response.room_bytes().min(left_bytes).min(part.len())];
            response.write(part).unwrap();
            context.state += part.len() as u64;
            match context.state == download_bytes {
                true => Flow::Done,
                false => Flow::Stream(Interest::ROOM),
            }
        }
    }
}
