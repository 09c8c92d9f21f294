//! One request from its event to its response: the service that runs on every shard.
//!
//! On the path: `http::server` calls in with a complete request; reads that memory can answer are
//! answered here and now (`value_cache`, then the engine's own memory), all else becomes a job (`executor`) and is answered when it comes home.
//! Absent on purpose: waiting, locks and heap calls. Buffers come from the shard's pool and return
//! to it on this thread.

use std::sync::Arc;

use millpond_http::{
    Completions, Flow, Method, MetricsText, Request, RequestToken, Response, Service,
    ServiceContext, StreamEvent,
};
use millpond_mempool::{Buffer, PoolError, PoolStats};

use crate::api::{self, Reply, Route, route};
use crate::commit::{Job, JobKind, Outcome};
use crate::counters::ShardCounters;
use crate::executor::{Answer, ShardLink};
use crate::key::{KeyScratch, decode_id};
use crate::metrics::Metrics;
use crate::range::{RangeRefusal, Ranges};
use crate::stamps::Stamp;
use crate::store::{CachedRead, Store};
use crate::value_cache::{Lookup, ValueCache};

/// The entity service of one shard.
pub struct EntityService<S> {
    store: Arc<S>,
    link: ShardLink,
    cache: ValueCache,
    ranges: Ranges,
    metrics: Arc<Metrics>,
    scratch: KeyScratch,
    /// Kept for its memory: empty between two calls of `woken`.
    answers: Vec<Answer>,
}

impl<S: Store> EntityService<S> {
    /// A service that reads from `cache` and `store`, by `ranges` too, and writes through `link`.
    #[must_use]
    pub fn new(
        store: Arc<S>,
        link: ShardLink,
        cache: ValueCache,
        ranges: Ranges,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            store,
            link,
            cache,
            ranges,
            metrics,
            scratch: KeyScratch::new(),
            answers: Vec::new(),
        }
    }

    fn get(
        &mut self,
        encoded_id: &[u8],
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        let key = decode_id(encoded_id, &mut self.scratch).map_err(Reply::BadId)?;
        let missed = match self.cache.get(key) {
            Lookup::Hit(value) => {
                api::send_value(response, value)?;
                self.link.counters().get_hits.add(1);
                return Ok(Flow::Done);
            }
            Lookup::Miss(missed) => missed,
        };
        let read = self.store.get_cached(key, |value| {
            self.cache.fill(&context.pools.blocks, key, value, missed);
            api::send_value(response, value)
        });
        match read {
            Ok(CachedRead::Found(sent)) => {
                sent?;
                self.link.counters().get_hits.add(1);
                Ok(Flow::Done)
            }
            Ok(CachedRead::Absent) => {
                self.link.counters().get_misses.add(1);
                Err(Reply::NotFound.into())
            }
            Ok(CachedRead::NotCached) => {
                self.link.admit(key.len()).map_err(|_| Reply::Overloaded)?;
                let key = copy(key, context)?;
                self.link.counters().cold_reads.add(1);
                let job = self.job(JobKind::Get, key, Buffer::new(), missed.stamp, context);
                self.link.submit(job);
                Ok(Flow::Pending)
            }
            Err(_) => Err(Reply::ReadFailed.into()),
        }
    }

    fn write(
        &mut self,
        kind: JobKind,
        encoded_id: &[u8],
        request: &mut Request<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        let key = decode_id(encoded_id, &mut self.scratch).map_err(Reply::BadId)?;
        if self.link.is_poisoned() {
            return Err(Reply::WritesRefused.into());
        }
        // A delete's body, should there be one, means nothing and is not kept.
        let value_len = if kind == JobKind::Put {
            request.body().len()
        } else {
            0
        };
        self.link
            .admit(key.len() + value_len)
            .map_err(|_| Reply::Overloaded)?;
        let key = copy(key, context)?;
        let value = match kind {
            JobKind::Put => request.take_body(&context.pools.blocks)?,
            JobKind::Delete | JobKind::Get => Buffer::new(),
        };
        let job = self.job(kind, key, value, None, context);
        self.link.submit(job);
        Ok(Flow::Pending)
    }

    fn range(
        &mut self,
        start: &[u8],
        end: Option<&[u8]>,
        method: Method,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        let start = decode_id(start, &mut self.scratch).map_err(Reply::BadId)?;
        let start = copy(start, context)?;
        let end = match end {
            Some(end) => {
                let end = decode_id(end, &mut self.scratch).map_err(Reply::BadId)?;
                Some(copy(end, context)?)
            }
            None => None,
        };
        if method == Method::Head {
            api::send_range_head(response)?;
            return Ok(Flow::Done);
        }
        let opened = self.ranges.open(context.token, start, end);
        context.state = opened.map_err(|refusal| match refusal {
            RangeRefusal::Overloaded(_) => Refusal::from(Reply::Overloaded),
            RangeRefusal::NoMemory(error) => error.into(),
        })?;
        Ok(Flow::Pending)
    }

    fn job(
        &self,
        kind: JobKind,
        key: Buffer,
        value: Buffer,
        stamp: Option<Stamp>,
        context: &ServiceContext<'_>,
    ) -> Job {
        Job {
            shard_index: self.link.shard_index(),
            request: context.token,
            kind,
            key,
            value,
            stamp,
        }
    }
}

impl<S: Store> Service for EntityService<S> {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let result = match route(request) {
            Route::Get(encoded_id) => self.get(encoded_id, response, context),
            Route::Put(encoded_id) => self.write(JobKind::Put, encoded_id, request, context),
            Route::Delete(encoded_id) => self.write(JobKind::Delete, encoded_id, request, context),
            Route::Range { start, end } => {
                self.range(start, end, request.method, response, context)
            }
            Route::Status if self.link.is_poisoned() => Err(Reply::WritesRefused.into()),
            Route::Status => Err(Reply::Ready.into()),
            Route::Refuse(reply) => Err(reply.into()),
        };
        let reply = match result {
            Ok(flow) => return flow,
            Err(Refusal::Reply(reply)) => reply,
            Err(Refusal::NoMemory) => Reply::Overloaded,
        };
        count(self.link.counters(), reply);
        // Without memory even for this, nothing is sent and the server answers 503.
        let _ = reply.send(response);
        Flow::Done
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let has_room = event == StreamEvent::Room;
        self.ranges
            .go_on(context.state, context.token, response, has_room)
    }

    fn abandoned(&mut self, token: RequestToken, state: u64) {
        self.ranges.abandoned(state, token);
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.ranges.pool_stats());
    }

    fn trim_pools(&mut self) -> usize {
        self.ranges.trim()
    }

    fn tick_ended(&mut self) {
        self.link.flush();
    }

    fn woken(&mut self, completions: &mut Completions<'_>) {
        self.ranges.woken(completions);
        self.link.take_answers(&mut self.answers);
        for Answer { job, outcome } in self.answers.drain(..) {
            let reply = match (outcome, job.kind) {
                (Outcome::Found, _) => None,
                (Outcome::Written, JobKind::Put) => Some(Reply::Created),
                (Outcome::Written, JobKind::Delete) => Some(Reply::Accepted),
                (Outcome::Absent, _) => Some(Reply::NotFound),
                (Outcome::Refused, _) => Some(Reply::WritesRefused),
                (Outcome::ReadFailed, _) | (Outcome::Written, JobKind::Get) => {
                    Some(Reply::ReadFailed)
                }
            };
            let counters = self.link.counters();
            match reply {
                None => counters.get_hits.add(1),
                Some(Reply::NotFound) => counters.get_misses.add(1),
                Some(reply) => count(counters, reply),
            }
            // False: the client has gone. A write is durable all the same.
            completions.respond(job.request, |response, pools| {
                // Without memory for it nothing is sent and the server answers 503.
                let _ = match reply {
                    None => api::send_value(response, &job.value),
                    Some(reply) => reply.send(response),
                };
                // The value is in the read thread's memory: what stays here is a copy in ours.
                if let (None, Some(stamp)) = (reply, job.stamp) {
                    let (key, value) = (&job.key, &job.value);
                    self.cache.fill_late(&pools.blocks, key, value, stamp);
                }
            });
            match (reply, job.stamp) {
                // The shard's own buffers, home from the commit: they stay as they are.
                (Some(Reply::Created), Some(stamp)) => {
                    self.cache.insert(job.key, job.value, stamp);
                }
                (Some(Reply::Accepted), _) => self.cache.remove(&job.key),
                _ => {}
            }
        }
    }

    fn write_metrics(&self, out: &mut MetricsText<'_>) {
        self.metrics.write(out);
    }

    fn can_stop(&self) -> bool {
        self.link.jobs_in_flight() == 0
    }
}

/// Why a request ends here without a value.
enum Refusal {
    Reply(Reply),
    /// The shard's pool has no block left.
    NoMemory,
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

impl From<PoolError> for Refusal {
    fn from(_: PoolError) -> Self {
        Self::NoMemory
    }
}

fn copy(key: &[u8], context: &ServiceContext<'_>) -> Result<Buffer, PoolError> {
    let mut copy = Buffer::with_capacity(&context.pools.blocks, key.len())?;
    copy.append_within_capacity(key);
    Ok(copy)
}

/// Counts an answer that was not a read's.
fn count(counters: &ShardCounters, reply: Reply) {
    match reply {
        Reply::Created => counters.puts.add(1),
        Reply::Accepted => counters.deletes.add(1),
        Reply::Overloaded => counters.overloads.add(1),
        Reply::WritesRefused | Reply::ReadFailed => counters.store_failures.add(1),
        // Counted by status in the server, or by the caller.
        Reply::Ready
        | Reply::NotFound
        | Reply::UnknownPath
        | Reply::MissingId
        | Reply::MissingStart
        | Reply::BadId(_)
        | Reply::MethodNotAllowed { .. } => {}
    }
}
