//! One service for every way of bodies in parts: it takes them, makes them, echoes them, or does not
//! want them.

use crate::support::{TestServer, pattern};
use millpond_http::{
    BodyLength, Completions, Field, FieldName, FieldValue, Flow, HeadFields, Interest, Limits,
    Request, RequestToken, Response, Service, ServiceContext, ShardStart, StatusCode, StreamEvent,
    WriteError, parse_trailer_fields,
};
use millpond_io::Waker;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const X_TOTAL: FieldName<'_> = FieldName::from_static("X-Total");
const X_KIND: Field<'_> = (
    FieldName::from_static("X-Kind"),
    FieldValue::from_static("pattern"),
);

/// Data of one exchange.
#[derive(Debug)]
enum Task {
    /// Checks and counts what comes.
    Upload {
        received_bytes: u64,
        is_intact: bool,
    },
    /// Like it, but takes nothing until released.
    Held {
        received_bytes: u64,
        is_intact: bool,
    },
    /// Writes the pattern.
    Download {
        written_bytes: u64,
        length: u64,
        trailer: bool,
    },
    /// Writes what comes.
    Echo,
    /// Writes two bytes and is done with it, whatever comes.
    Early,
}

/// All of it in one service. State is kept by a number that the server carries.
struct Streamer {
    tasks: HashMap<u64, Task>,
    next: u64,
    held: Vec<RequestToken>,
    waker: Waker,
    is_released: bool,
    abandoned: Arc<AtomicU64>,
}

impl Streamer {
    fn new(start: &ShardStart, abandoned: Arc<AtomicU64>) -> Self {
        Self {
            tasks: HashMap::new(),
            next: 0,
            held: Vec::new(),
            waker: start.waker.clone(),
            is_released: false,
            abandoned,
        }
    }

    fn begin(&mut self, task: Task, context: &mut ServiceContext<'_>) {
        self.next += 1;
        context.state = self.next;
        self.tasks.insert(self.next, task);
    }

    fn produce(&mut self, response: &mut Response<'_>, state: u64) -> Flow {
        let Some(Task::Download {
            written_bytes,
            length,
            trailer,
        }) = self.tasks.get_mut(&state)
        else {
            unreachable!("only downloads want room alone")
        };
        let part = response
            .room_bytes()
            .min((*length - *written_bytes) as usize);
        response.write(&pattern(*written_bytes, part)).unwrap();
        *written_bytes += part as u64;
        if written_bytes < length {
            return Flow::Stream(Interest::ROOM);
        }
        let total = written_bytes.to_string();
        let fields = &[(X_TOTAL, FieldValue::new(&total).unwrap())][..];
        response
            .finish_with(if *trailer { fields } else { &[] })
            .unwrap();
        self.tasks.remove(&state);
        Flow::Done
    }
}

impl Streamer {
    /// Responses that are over with the call, and not all as they should be.
    fn answer_oddly(request: &Request<'_>, response: &mut Response<'_>) -> Flow {
        match request.path() {
            b"/short" => {
                response
                    .start(StatusCode::OK, &[], BodyLength::Known(100))
                    .unwrap();
                response.write(b"0123456789").unwrap();
                assert_eq!(
                    response.finish(),
                    Err(WriteError::Missing { left_bytes: 90 })
                );
                Flow::Done
            }
            b"/chunk-in-parts" => {
                response
                    .start(StatusCode::OK, &[], BodyLength::Unknown)
                    .unwrap();
                response.start_chunk(12).unwrap();
                response.write(b"01234").unwrap();
                let missing = Err(WriteError::Missing { left_bytes: 7 });
                assert_eq!(response.start_chunk(1), missing);
                assert_eq!(response.finish(), missing);
                let refused = WriteError::PastLength {
                    given_bytes: 8,
                    left_bytes: 7,
                };
                assert_eq!(response.write(b"56789abc"), Err(refused));
                response.write(b"").unwrap();
                response.write(b"56789ab").unwrap();
                response.write(b"whole").unwrap();
                response.finish().unwrap();
                assert_eq!(response.start_chunk(1), Err(WriteError::NotOpen));
                Flow::Done
            }
            b"/long" => {
                response
                    .start(StatusCode::OK, &[], BodyLength::Known(4))
                    .unwrap();
                let refused = WriteError::PastLength {
                    given_bytes: 5,
                    left_bytes: 4,
                };
                assert_eq!(response.write(b"01234"), Err(refused));
                response.write(b"0123").unwrap();
                Flow::Done
            }
            _ => {
                let text = request.body().len().to_string();
                response
                    .send(StatusCode::OK, None, text.as_bytes())
                    .unwrap();
                Flow::Done
            }
        }
    }
}

fn number(request: &Request<'_>) -> u64 {
    let text = request
        .query()
        .map(|query| std::str::from_utf8(query).unwrap());
    text.map_or(0, |text| text.parse().unwrap())
}

impl Service for Streamer {
    fn takes_body_in_parts(&mut self, request: &Request<'_>) -> bool {
        request.path() != b"/whole"
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let upload = (0, true);
        match request.path() {
            b"/upload" => {
                let (received_bytes, is_intact) = upload;
                let task = Task::Upload {
                    received_bytes,
                    is_intact,
                };
                self.begin(task, context);
                Flow::Stream(Interest::BODY)
            }
            b"/held" => {
                let (received_bytes, is_intact) = upload;
                let task = Task::Held {
                    received_bytes,
                    is_intact,
                };
                self.begin(task, context);
                self.held.push(context.token);
                Flow::Stream(Interest::default())
            }
            b"/release" => {
                self.is_released = true;
                self.waker.wake();
                response.send(StatusCode::OK, None, b"").unwrap();
                Flow::Done
            }
            path @ (b"/download" | b"/chunks") => {
                let length = number(request);
                let is_chunked = path == b"/chunks";
                let announced = match is_chunked {
                    true => BodyLength::Unknown,
                    false => BodyLength::Known(length),
                };
                response
                    .start(StatusCode::OK, &[X_KIND], announced)
                    .unwrap();
                let task = Task::Download {
                    written_bytes: 0,
                    length,
                    trailer: is_chunked,
                };
                self.begin(task, context);
                Flow::Stream(Interest::ROOM)
            }
            b"/echo" => {
                response
                    .start(StatusCode::OK, &[], BodyLength::Unknown)
                    .unwrap();
                self.begin(Task::Echo, context);
                Flow::Stream(Interest::BODY)
            }
            b"/early" => {
                response
                    .start(StatusCode::OK, &[], BodyLength::Known(2))
                    .unwrap();
                self.begin(Task::Early, context);
                Flow::Stream(Interest::BOTH)
            }
            b"/short" | b"/long" | b"/whole" | b"/chunk-in-parts" => {
                Self::answer_oddly(request, response)
            }
            b"/forget" => Flow::Done,
            _ => {
                response.send(StatusCode::FORBIDDEN, None, b"no").unwrap();
                Flow::Done
            }
        }
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let task = self
            .tasks
            .get_mut(&context.state)
            .expect("the state comes back");
        match (task, event) {
            (
                Task::Upload {
                    received_bytes,
                    is_intact,
                }
                | Task::Held {
                    received_bytes,
                    is_intact,
                },
                StreamEvent::Body(bytes),
            ) => {
                *is_intact &= bytes == pattern(*received_bytes, bytes.len());
                *received_bytes += bytes.len() as u64;
                Flow::Stream(Interest::BODY)
            }
            (
                Task::Upload {
                    received_bytes,
                    is_intact,
                }
                | Task::Held {
                    received_bytes,
                    is_intact,
                },
                StreamEvent::BodyEnd { trailer },
            ) => {
                let mut fields = HeadFields::new();
                parse_trailer_fields(trailer, &Limits::default(), &mut fields).unwrap();
                let checksum = fields.value_of(trailer, b"X-Sum").unwrap_or(b"none");
                let checksum = String::from_utf8_lossy(checksum);
                let text = format!("{received_bytes} {is_intact} {checksum}");
                self.tasks.remove(&context.state);
                response
                    .send(StatusCode::CREATED, None, text.as_bytes())
                    .unwrap();
                Flow::Done
            }
            (Task::Held { .. }, StreamEvent::Resumed) => Flow::Stream(Interest::BODY),
            (Task::Download { .. }, StreamEvent::Room) => self.produce(response, context.state),
            (Task::Echo, StreamEvent::Body(bytes)) => {
                response.write(bytes).unwrap();
                Flow::Stream(Interest::BODY)
            }
            (Task::Echo, StreamEvent::BodyEnd { .. }) => {
                response.finish().unwrap();
                self.tasks.remove(&context.state);
                Flow::Done
            }
            (Task::Early, StreamEvent::Room) => {
                response.write(b"ok").unwrap();
                self.tasks.remove(&context.state);
                Flow::Done
            }
            (task, event) => panic!("{event:?} for {task:?}"),
        }
    }

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
        if self.is_released {
            for token in self.held.drain(..) {
                completions.resume(token);
            }
        }
    }

    fn abandoned(&mut self, _token: RequestToken, state: u64) {
        if self.tasks.remove(&state).is_some() {
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(super) fn serve(limits: Limits) -> (TestServer, Arc<AtomicU64>) {
    let abandoned = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&abandoned);
    let server = TestServer::with_limits(limits, move |start| {
        Streamer::new(&start, Arc::clone(&shared))
    });
    (server, abandoned)
}
