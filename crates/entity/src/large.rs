//! Large values that are stored whole on their way out: held once, and written as fast as each client reads. Longer ones
//! are stored in parts (`downloads`).
//!
//! ```text
//! reader: Store::get -> BodyBudget::take -> Job::hold          no room: it waits, then 503
//! shard: Job -> LargeAnswers::begin -> Response::write ...     as there is room
//! ```
//! On the path: what is not large is copied into the connection's output at once, for which the output
//! is made. Of what is large every reader would have a copy of his own there, for as long as he takes;
//! so it stays in the read thread's buffer, of which there are only so many bytes at a time. While others wait
//! for these, the client that reads slowest for what it holds is cut (`millpond_http::body_budget`).

use std::time::Duration;

use millpond_http::{BodyHold, Completions, Flow, Interest, RequestToken, Response};
use millpond_io::monotonic_ns;

use crate::api::{self, Reply};
use crate::commit::Job;

/// A record longer than this is large: half of what a connection may have unsent.
pub const LARGE_BYTES: usize = 128 << 10;

/// How often those who hold memory are looked at, while somebody waits for it.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// An answer under way.
struct LargeAnswer {
    request: RequestToken,
    /// Holds the record, and the bytes of it.
    job: Job,
    /// How much of the value is written.
    at: usize,
}

/// Those of one shard. Few, by their size: a list is searched as fast as a table.
#[derive(Default)]
pub struct LargeAnswers {
    answers: Vec<LargeAnswer>,
}

impl LargeAnswers {
    /// Begins to answer a read with the record it found; what is to be sent in its place is returned,
    /// and counted by the caller.
    pub fn begin(&mut self, completions: &mut Completions<'_>, job: Job) -> Option<Reply> {
        let mut reply = None;
        let request = job.request;
        let mut answer = LargeAnswer {
            request,
            job,
            at: 0,
        };
        let mut is_open = false;
        completions.continue_with(request, |response, _| {
            let (record, condition) = (&answer.job.value, &answer.job.condition);
            match api::start_record(response, record, condition) {
                // Without memory for it nothing is sent and the server answers 503.
                Err(_) => return Flow::Done,
                Ok(api::Started::Value) => {}
                Ok(api::Started::Whole) => return Flow::Done,
                Ok(api::Started::Reply(other)) => {
                    reply = Some(other);
                    let _ = other.send(response);
                    return Flow::Done;
                }
            }
            let flow = answer.write(response);
            is_open = flow != Flow::Done;
            flow
        });
        if is_open {
            self.answers.push(answer);
        }
        reply
    }

    /// Goes on with an answer, if the request's is one of these.
    pub fn go_on(&mut self, request: RequestToken, response: &mut Response<'_>) -> Option<Flow> {
        let place = self.place(request)?;
        let flow = self.answers[place].write(response);
        if flow == Flow::Done {
            self.answers.swap_remove(place);
        }
        Some(flow)
    }

    /// The client has gone.
    pub fn abandoned(&mut self, request: RequestToken) {
        if let Some(place) = self.place(request) {
            self.answers.swap_remove(place);
        }
    }

    /// Has those cut whose clients read too slowly for others that wait for the memory; returns how many.
    pub fn cut(&mut self, completions: &mut Completions<'_>) -> u64 {
        let mut count = 0;
        self.answers.retain(|answer| {
            let is_cut = answer.job.hold.as_ref().is_some_and(BodyHold::is_cut);
            if is_cut {
                completions.cut(answer.request);
                count += 1;
            }
            !is_cut
        });
        count
    }

    fn place(&self, request: RequestToken) -> Option<usize> {
        let mut answers = self.answers.iter();
        answers.position(|answer| answer.request == request)
    }
}

impl LargeAnswer {
    fn write(&mut self, response: &mut Response<'_>) -> Flow {
        if self.job.hold.as_ref().is_some_and(BodyHold::is_cut) {
            return Flow::Done;
        }
        let value = api::value_of(&self.job.value);
        while self.at < value.len() {
            let room = response.room_bytes();
            if room == 0 {
                return Flow::Stream(Interest::ROOM);
            }
            let end = value.len().min(self.at + room);
            // Without memory it cannot be completed: the server cuts it, which the client sees.
            if response.write(&value[self.at..end]).is_err() {
                return Flow::Done;
            }
            if let Some(hold) = &self.job.hold {
                hold.moved((end - self.at) as u64, monotonic_ns());
            }
            self.at = end;
        }
        Flow::Done
    }
}
