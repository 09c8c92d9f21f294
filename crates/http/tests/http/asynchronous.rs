//! `async fn` handlers over real sockets: bodies, time, other threads, clients that go away.

use crate::support::{PATIENCE, TestServer, wait_until};
use millpond_http::{
    AsyncRequest, AsyncService, AsyncShard, BodyLength, FieldName, FieldValue, LimitValues, Limits,
    Reply, Service, ShardStart,
};
use millpond_http::{Method, StatusCode};
use std::future::poll_fn;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

const MILLISECOND_NS: u64 = 1_000_000;

/// A value that another thread brings.
#[derive(Default)]
struct Promise {
    value: Option<&'static str>,
    waker: Option<Waker>,
}

async fn brought(promise: Arc<Mutex<Promise>>) -> &'static str {
    poll_fn(move |context| {
        let mut promise = promise.lock().unwrap();
        promise.waker = Some(context.waker().clone());
        promise.value.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// State shared by all handlers of a test.
#[derive(Default)]
struct Shared {
    dropped: AtomicU64,
    waiting: Mutex<Vec<Arc<Mutex<Promise>>>>,
}

/// Counts the futures that end, however they do.
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

async fn handle(mut request: AsyncRequest, shared: Arc<Shared>) -> Reply {
    let _guard = Guard(Arc::clone(&shared));
    match (request.method, request.path()) {
        (Method::GET, b"/now") => Reply::text(StatusCode::OK, "now"),
        (Method::GET, b"/later") => {
            let start = Instant::now();
            request.sleep(30 * MILLISECOND_NS).await;
            assert!(start.elapsed() >= Duration::from_millis(30));
            Reply::text(StatusCode::OK, "later")
        }
        (Method::GET, b"/thread") => {
            let promise = Arc::new(Mutex::new(Promise::default()));
            let bringer = Arc::clone(&promise);
            std::thread::spawn(move || {
                // Not before there is a waiter.
                loop {
                    let mut promise = bringer.lock().unwrap();
                    if let Some(waker) = promise.waker.take() {
                        promise.value = Some("brought");
                        return waker.wake();
                    }
                    drop(promise);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            Reply::text(StatusCode::OK, brought(promise).await)
        }
        (Method::GET, b"/never") => {
            let promise = Arc::new(Mutex::new(Promise::default()));
            shared.waiting.lock().unwrap().push(Arc::clone(&promise));
            Reply::text(StatusCode::OK, brought(promise).await)
        }
        (Method::GET, b"/agent") => {
            let agent = request.header("user-agent").unwrap_or(b"nobody");
            let mut body = millpond_mempool::Buffer::new();
            body.extend_from_slice(request.blocks(), agent).unwrap();
            Reply::bytes(StatusCode::OK, FieldValue::TEXT_PLAIN, body)
        }
        (Method::POST, b"/double") => {
            let mut body = request.read_body(1000).await.unwrap();
            let once = body.to_vec();
            body.extend_from_slice(request.blocks(), &once).unwrap();
            Reply::bytes(StatusCode::OK, FieldValue::TEXT_PLAIN, body)
        }
        (Method::POST, b"/slow-reader") => {
            let mut count = 0;
            while let Some(part) = request.next_part().await {
                count += part.len();
                request.sleep(1).await;
            }
            assert_eq!(count, 3_000_000);
            Reply::text(StatusCode::CREATED, "read")
        }
        (Method::POST, b"/limited") => match request.read_body(10).await {
            Ok(_) => Reply::text(StatusCode::OK, "short"),
            Err(_) => Reply::text(StatusCode::CONTENT_TOO_LARGE, "long"),
        },
        _ => tell_or_write(request).await,
    }
}

/// A handler's view of its request, and bodies in parts.
async fn tell_or_write(mut request: AsyncRequest) -> Reply {
    match (request.method, request.path()) {
        (Method::GET, b"/told") => {
            // Each twice: the second lookup uses the table that the first has made.
            let mut text = String::new();
            for _ in 0..2 {
                for (name, value) in request.headers().unwrap() {
                    text += &format!("{}={};", name.escape_ascii(), value.escape_ascii());
                }
            }
            for (name, value) in request.query_pairs() {
                text += &format!("{name}={value};");
            }
            let mut body = millpond_mempool::Buffer::new();
            write!(body.writer(request.blocks()), "{text}").unwrap();
            let tag = format!("\"{}\"", text.len());
            Reply::bytes(StatusCode::OK, FieldValue::TEXT_PLAIN, body)
                .with_field(FieldName::CONTENT_TYPE, "text/csv")
                .and_then(|reply| reply.with_field(FieldName::ETAG, tag))
                .unwrap_or_else(|_| Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "tag"))
        }
        (Method::GET | Method::HEAD, b"/counted") => {
            let mut body =
                request.begin(Reply::text(StatusCode::OK, "begin\n"), BodyLength::Unknown);
            for number in 0..100_000_u32 {
                if number % 30_000 == 7 {
                    request.sleep(1).await;
                }
                body.write(format!("{number}\n").as_bytes()).await.unwrap();
            }
            body.finish()
        }
        (Method::GET, b"/broken-off") => {
            let mut body = request.begin(Reply::empty(StatusCode::OK), BodyLength::Known(10));
            body.write(b"half").await.unwrap();
            Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "too late")
        }
        (Method::GET, b"/too-short") => {
            let mut body = request.begin(Reply::empty(StatusCode::OK), BodyLength::Known(10));
            body.write(b"half").await.unwrap();
            body.finish()
        }
        _ => Reply::text(StatusCode::NOT_FOUND, "no"),
    }
}

fn service(start: &ShardStart, shared: &Arc<Shared>) -> impl Service + use<> {
    let shared = Arc::clone(shared);
    let shard = AsyncShard::new(start.pool_mode);
    AsyncService::new(start, shard, move |request| {
        handle(request, Arc::clone(&shared))
    })
}

fn serve() -> (TestServer, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    let given = Arc::clone(&shared);
    let server = TestServer::with_limits(Limits::default(), move |start| service(&start, &given));
    (server, shared)
}

/// Goal: responses at once, after a time, and from another thread; many at a time, and in order when
/// they are pipelined.
#[test]
fn futures_wait_for_time_and_threads() {
    let (server, shared) = serve();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: me\r\n\r\n");
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for (path, text) in [
        ("/now", "now"),
        ("/later", "later"),
        ("/thread", "brought"),
        ("/agent", "me"),
        ("/no", "no"),
    ] {
        clients.iter_mut().for_each(|client| client.send(get(path)));
        for client in &mut clients {
            assert_eq!(client.response().text(), text);
        }
    }
    let client = &mut clients[0];
    client.send([get("/later"), get("/now"), get("/thread"), get("/now")].concat());
    for text in ["later", "now", "brought", "now"] {
        assert_eq!(client.response().text(), text);
    }
    assert_eq!(
        shared.dropped.load(Ordering::Relaxed),
        104,
        "each future ends once"
    );
}

/// Goal: bodies are read whole or in parts, however they are cut; a slow reader loses nothing.
#[test]
fn futures_read_bodies() {
    let (server, _) = serve();
    let mut client = server.connect();
    let head = "POST /double HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for cut in 1..30 {
        let bytes = [head, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"].concat();
        let cut = bytes.len() - cut;
        client.send(&bytes[..cut]);
        client.send(&bytes[cut..]);
        assert_eq!(client.response().text(), "abcdeabcde");
    }
    client.send("POST /slow-reader HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n");
    client.send(vec![b'x'; 3_000_000]);
    assert_eq!(client.response().text(), "read");
    let long = "POST /limited HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n12345678901";
    assert_eq!(client.ask(long).status, 413);
    assert_eq!(
        client
            .ask(long.replace("11", "9").replace("901", "9"))
            .status,
        200
    );
}

/// Goal: the future of a client that has gone is dropped; a wake that comes later has no effect.
#[test]
fn a_future_ends_with_its_client() {
    let (server, shared) = serve();
    let mut gone = server.connect();
    let get = "GET /now HTTP/1.1\r\nHost: a\r\n\r\n";
    gone.send([get, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    let deadline = Instant::now() + PATIENCE;
    let promise = loop {
        if let Some(promise) = shared.waiting.lock().unwrap().pop() {
            break promise;
        }
        assert!(Instant::now() < deadline);
    };
    // Closed with a response unread, which resets the connection: a mere end could be a client that
    // still waits.
    assert_eq!(gone.stream.peek(&mut [0]).unwrap(), 1);
    drop(gone);
    while shared.dropped.load(Ordering::Relaxed) < 2 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let mut client = server.connect();
    assert_eq!(client.ask(get).text(), "now");
    let waker = promise.lock().unwrap().waker.take();
    waker.unwrap().wake();
    assert_eq!(client.ask(get).text(), "now");
    assert_eq!(shared.dropped.load(Ordering::Relaxed), 4);
}

/// Goal: memory of futures is in the accounting, on `/metrics` and for SIGUSR1.
#[test]
fn futures_are_in_the_books() {
    const COUNT: usize = 5;
    let (server, shared) = serve();
    let never = "GET /never HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut clients: Vec<_> = (0..COUNT).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(never));
    let mut scraper = server.connect();
    let mut live_objects = |pool: &str| -> usize {
        let text = scraper
            .ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            .text();
        let start = format!("millpond_pool_live_objects{{shard=\"0\",pool=\"{pool}\"");
        let line = text.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no {start} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    for pool in ["http_futures", "http_async_bodies"] {
        wait_until(pool, || live_objects(pool) == COUNT);
    }
    for pool in ["http_sleeps", "http_upstream_calls"] {
        assert_eq!(live_objects(pool), 0);
    }
    assert!(server.running.accounting_table().contains("http_futures"));
    drop(clients);
    drop(shared);
}

/// After a response that came later the connection counted as in the middle of a request, and got 408 when the time for
/// a head had passed. Goal: it is idle, for as long as idle ones may be.
#[test]
fn a_connection_is_idle_after_a_late_answer() {
    let limits = LimitValues {
        head_timeout_ns: 200_000_000,
        ..LimitValues::default()
    };
    let server = TestServer::with_limits(limits.checked().unwrap(), |start| {
        let shard = AsyncShard::new(start.pool_mode);
        AsyncService::new(&start, shard, |request: AsyncRequest| async move {
            request.sleep(1_000_000).await;
            Reply::text(StatusCode::OK, "late")
        })
    });
    let mut client = server.connect();
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 200);
        std::thread::sleep(std::time::Duration::from_millis(600));
    }
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    for _ in 0..2 {
        client.send(post);
        assert_eq!(client.response().status, 200);
        std::thread::sleep(std::time::Duration::from_millis(600));
    }
    client.send(post);
    assert_eq!(client.response().status, 200);
}

/// Goal: a handler sees all fields and parameters, and gives its reply fields that it knows only then; one that
/// could end the header section is refused.
#[test]
fn fields_and_parameters_both_ways() {
    let (server, _shared) = serve();
    let mut client = server.connect();
    let response = client
        .ask("GET /told?a=1+2&b=%C3%A9&c HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nx-one: 2\r\n\r\n");
    let fields = "Host=a;X-One=1;x-one=2;";
    let expected = format!("{fields}{fields}a=1 2;b=\u{e9};c=;");
    assert_eq!(response.text(), expected);
    assert_eq!(response.header("content-type"), Some("text/csv"));
    let tag = format!("\"{}\"", expected.len());
    assert_eq!(response.header("etag"), Some(&*tag));
    let split = Reply::text(StatusCode::OK, "").with_field(FieldName::ETAG, "a\r\nX: y");
    assert!(split.is_err());
}

/// Goal: a handler writes a body in parts of any number, waits while its client does not read, and holds no more memory
/// meanwhile; one that stops before the end is cut; one in response to HEAD is not sent.
#[test]
fn handlers_write_bodies_in_parts() {
    let (server, _shared) = serve();
    let numbers: String = (0..100_000).map(|number| format!("{number}\n")).collect();
    let mut client = server.connect();
    client.send("GET /counted HTTP/1.1\r\nHost: a\r\n\r\n");
    // The handler is far ahead of what is read here, unless it waits.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.response().text(), format!("begin\n{numbers}"));
    client.send("HEAD /counted HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to_head().status, 200);
    for path in ["/broken-off", "/too-short"] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let received = client.rest();
        assert!(
            received.ends_with(b"\r\n\r\nhalf"),
            "{}",
            received.escape_ascii()
        );
    }
}
