//! Exchanges in parts of the simulated service: bodies taken as they come, held back until the back office continues
//! them, sent back at once, with a response before their end; responses written as room comes.

use crate::service::{answer_to, large_body};
use millpond_http::{
    BodyLength, Flow, Interest, Request, Response, ServiceContext, StatusCode, StreamEvent,
};
use std::collections::BTreeMap;

/// Data of one exchange.
enum Task {
    /// The response comes when all of the body is here.
    Gather {
        method: String,
        target: String,
        body: Vec<u8>,
    },
    /// Every part goes back as it comes.
    Echo,
    /// The response comes at the first part.
    Early,
    Download {
        body: Vec<u8>,
        written: usize,
    },
}

/// Every exchange that was begun and neither ended nor abandoned.
#[derive(Default)]
pub(crate) struct Streams {
    tasks: BTreeMap<u64, Task>,
    last: u64,
}

impl Streams {
    pub(crate) fn open_count(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn takes(target: &str) -> bool {
        ["/in/", "/held/", "/echo/", "/early/"]
            .iter()
            .any(|start| target.starts_with(start))
    }

    /// Begins an exchange, if the target is one of those; whether it waits for the back office.
    pub(crate) fn begin(
        &mut self,
        request: &Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Option<Flow> {
        let method = std::str::from_utf8(request.method_token()).unwrap();
        let target = std::str::from_utf8(request.target().as_bytes()).unwrap();
        let (task, wants) = if target.starts_with("/in/") || target.starts_with("/held/") {
            let task = Task::Gather {
                method: method.to_owned(),
                target: target.to_owned(),
                body: Vec::new(),
            };
            let is_held = target.starts_with("/held/");
            (
                task,
                if is_held {
                    Interest::default()
                } else {
                    Interest::BODY
                },
            )
        } else if target.starts_with("/early/") {
            (Task::Early, Interest::BODY)
        } else if target.starts_with("/echo/") {
            if response
                .start(StatusCode::OK, &[], BodyLength::Unknown)
                .is_err()
            {
                return Some(Flow::Done);
            }
            (Task::Echo, Interest::BODY)
        } else {
            let (kind, len) = target.strip_prefix('/')?.split_once('/')?;
            let body = large_body(len.parse().ok()?);
            let length = match kind {
                "out" => BodyLength::Known(body.len() as u64),
                "chunks" => BodyLength::Unknown,
                _ => return None,
            };
            if response.start(StatusCode::OK, &[], length).is_err() {
                return Some(Flow::Done);
            }
            (Task::Download { body, written: 0 }, Interest::ROOM)
        };
        self.last += 1;
        context.state = self.last;
        self.tasks.insert(self.last, task);
        Some(Flow::Stream(wants))
    }

    pub(crate) fn go_on(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        state: u64,
    ) -> Flow {
        let task = self
            .tasks
            .get_mut(&state)
            .expect("an exchange that is not over");
        let flow = match (task, event) {
            (Task::Gather { .. }, StreamEvent::Resumed) => Flow::Stream(Interest::BODY),
            (Task::Gather { body, .. }, StreamEvent::Body(part)) => {
                assert!(!part.is_empty());
                body.extend_from_slice(part);
                Flow::Stream(Interest::BODY)
            }
            (
                Task::Gather {
                    method,
                    target,
                    body,
                },
                StreamEvent::BodyEnd { .. },
            ) => {
                let answer = answer_to(method, target, body);
                // Without memory nothing is sent, which becomes 503.
                let _ = response.send(StatusCode::OK, None, &answer);
                Flow::Done
            }
            (Task::Early, StreamEvent::Body(_) | StreamEvent::BodyEnd { .. }) => {
                let _ = response.send(StatusCode::OK, None, b"early");
                Flow::Done
            }
            (Task::Echo, StreamEvent::Body(part)) => match response.write(part) {
                Ok(()) => Flow::Stream(Interest::BODY),
                Err(_) => Flow::Done,
            },
            (Task::Echo, StreamEvent::BodyEnd { .. }) => {
                let _ = response.finish();
                Flow::Done
            }
            (Task::Download { body, written }, StreamEvent::Room) => {
                let count = response.room_bytes().min(body.len() - *written);
                let part = &body[*written..*written + count];
                *written += count;
                match response.write(part) {
                    Ok(()) if *written < body.len() => Flow::Stream(Interest::ROOM),
                    Ok(()) => {
                        let _ = response.finish();
                        Flow::Done
                    }
                    Err(_) => Flow::Done,
                }
            }
            (_, event) => panic!("{event:?} was not asked for"),
        };
        if flow == Flow::Done {
            self.tasks.remove(&state);
        }
        flow
    }

    pub(crate) fn abandoned(&mut self, state: u64) {
        // Zero: an exchange of the service's other responses.
        if state != 0 {
            self.tasks
                .remove(&state)
                .expect("abandoned once, and not after its end");
        }
    }
}
