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
use millpond_mempool::{Buffer, PoolStats};

use crate::access::Access;
use crate::api::{self, Reply, Route, route};
use crate::commit::{Job, JobKind, Outcome};
use crate::condition::Condition;
use crate::counters::ShardCounters;
use crate::executor::{Answer, ShardLink};
use crate::keeper::{CheckpointOutcome, CheckpointRefusal, KeeperLink};
use crate::key::{KeyScratch, decode_id};
use crate::large::{LARGE_BYTES, LargeAnswers};
use crate::metrics::Metrics;
use crate::range::{RangeRefusal, Ranges};
use crate::range_query::{FirstId, RangeQuery, ScanRange};
use crate::record::{HEAD_BYTES_MAX, SHARDS_MAX, Versions};
use crate::store::{CachedRead, Engine, Room};
use crate::strictness;
use crate::value_cache::{Lookup, ValueCache};
use crate::wishes::{Refusal, Wishes, acks_of, copy, first_after, record_of};

/// The entity service of one shard.
pub struct EntityService<S> {
    store: Arc<S>,
    link: ShardLink,
    cache: ValueCache,
    ranges: Ranges,
    large: LargeAnswers,
    keeper: KeeperLink,
    metrics: Arc<Metrics>,
    access: Access,
    scratch: KeyScratch,
    versions: Versions,
    /// Kept for its memory: empty between two calls of `woken`.
    answers: Vec<Answer>,
}

impl<S: Engine> EntityService<S> {
    /// A service that reads from `cache` and `store`, by `ranges` too, and writes through `link`, for
    /// whom `access` lets.
    #[must_use]
    pub fn new(
        store: Arc<S>,
        link: ShardLink,
        cache: ValueCache,
        ranges: Ranges,
        keeper: KeeperLink,
        metrics: Arc<Metrics>,
        access: Access,
    ) -> Self {
        let source = link.shard_index() + store.versions_from();
        let versions = Versions::after(source % SHARDS_MAX, store.versions_after_us());
        Self {
            store,
            link,
            cache,
            ranges,
            large: LargeAnswers::default(),
            keeper,
            metrics,
            access,
            scratch: KeyScratch::new(),
            versions,
            answers: Vec::new(),
        }
    }

    /// Whether whoever asks may have that.
    fn check_access(&self, route: &Route<'_>, request: &Request<'_>) -> Result<(), Reply> {
        if !self.access.limits_writes() {
            return Ok(());
        }
        let authorization = request.header("Authorization");
        route.right().map_or(Ok(()), |right| {
            self.access
                .check(right, authorization)
                .map_err(Reply::NotAllowed)
        })
    }

    /// Whether whoever asks may have that, and means what would be done. Of the request's head alone, so that it says the
    /// same before and after its body came.
    fn check(&self, route: &Route<'_>, request: &Request<'_>) -> Result<(), Reply> {
        self.check_access(route, request)?;
        strictness::check(route, request)
    }

    fn get(
        &mut self,
        encoded_id: &[u8],
        wishes: Wishes,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        let Wishes { condition, acks } = wishes;
        let key = decode_id(encoded_id, &mut self.scratch).map_err(Reply::BadId)?;
        let counters = self.link.counters();
        let missed = match self.cache.get(key) {
            Lookup::Hit(record) => {
                let reply = api::send_record(response, record, &condition)?;
                return counted_read(counters, reply);
            }
            Lookup::Miss(missed) => missed,
        };
        let read = self.store.get_cached(key, |record| {
            // Not copied here, and not for every client that asks for it.
            if record.len() > LARGE_BYTES {
                return None;
            }
            self.cache.fill(&context.pools.blocks, key, record, missed);
            Some(api::send_record(response, record, &condition))
        });
        match read {
            Ok(CachedRead::Found(Some(sent))) => counted_read(counters, sent?),
            Ok(CachedRead::Absent) => counted_read(counters, Some(Reply::NotFound)),
            Ok(CachedRead::NotCached | CachedRead::Found(None)) => {
                self.link.admit(JobKind::Get, key.len())?;
                let key = copy(key, context)?;
                self.link.counters().cold_reads.add(1);
                let job = Job {
                    stamp: missed.stamp,
                    condition,
                    acks,
                    ..self.job(JobKind::Get, key, context)
                };
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
        if self.link.is_paused() {
            return Err(Reply::Paused.into());
        }
        let is_put = kind == JobKind::Put;
        match self.link.room() {
            Room::Enough => {}
            Room::ForDeletes if !is_put => {}
            Room::ForDeletes | Room::None => return Err(Reply::NoRoom.into()),
        }
        // It would wait behind all that wait already, for as long as merging takes.
        if self.link.is_stopped() {
            return Err(Reply::Overloaded.into());
        }
        let Wishes { condition, acks } = Wishes::of(request, self.store.replicas())?;
        if !condition.is_none() && !self.store.judges_conditions() {
            return Err(Reply::NoConditions.into());
        }
        // A delete's body, should there be one, means nothing and is not kept; and one that has a hold
        // is counted by it.
        let is_counted = !is_put || request.has_held_body();
        let value_len = if is_counted { 0 } else { request.body().len() };
        let held_bytes = key.len() + value_len + if is_put { HEAD_BYTES_MAX } else { 0 };
        self.link.admit(kind, held_bytes)?;
        let key = copy(key, context)?;
        let (head, value, hold) = match is_put {
            true => record_of(request, &mut self.versions, context)?,
            false => (Buffer::new(), Buffer::new(), None),
        };
        let job = Job {
            head,
            value,
            hold,
            condition,
            acks,
            ..self.job(kind, key, context)
        };
        self.link.submit(job);
        Ok(Flow::Pending)
    }

    fn range(
        &mut self,
        query: RangeQuery<'_>,
        request: &Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        let start = match query.first {
            FirstId::At(id) => copy(decoded(id, &mut self.scratch)?, context)?,
            FirstId::After(id) => first_after(decoded(id, &mut self.scratch)?, context)?,
        };
        let end = match query.end {
            Some(end) => Some(copy(decoded(end, &mut self.scratch)?, context)?),
            None => None,
        };
        let acks = acks_of(request, self.store.replicas())?;
        if request.method == Method::Head {
            api::send_range_head(response, query.format)?;
            return Ok(Flow::Done);
        }
        let range = ScanRange {
            start,
            end,
            limit: query.limit,
            format: query.format,
        };
        let opened = self.ranges.open(context.token, range, acks, context.now_ns);
        context.state = opened.map_err(|refusal| match refusal {
            RangeRefusal::Overloaded(overloaded) => Refusal::from(overloaded),
            RangeRefusal::NoMemory(error) => error.into(),
        })?;
        Ok(Flow::Pending)
    }

    fn answer_checkpoint(&mut self, completions: &mut Completions<'_>) {
        if let Some(answer) = self.keeper.take_answer() {
            completions.respond(answer.request, |response, _| {
                let reply = match answer.outcome {
                    CheckpointOutcome::Made => Reply::CheckpointMade,
                    CheckpointOutcome::NotNew => Reply::NotNew,
                    CheckpointOutcome::NoRoom => Reply::NoRoom,
                    CheckpointOutcome::Failed => Reply::CheckpointFailed,
                };
                // Without memory for it nothing is sent and the server answers 503.
                let _ = reply.send(response);
            });
        }
    }

    fn job(&self, kind: JobKind, key: Buffer, context: &ServiceContext<'_>) -> Job {
        Job {
            shard_index: self.link.shard_index(),
            request: context.token,
            kind,
            key,
            head: Buffer::new(),
            value: Buffer::new(),
            condition: Condition::default(),
            acks: 1,
            refusal: None,
            stamp: None,
            hold: None,
        }
    }
}

impl<S: Engine> Service for EntityService<S> {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let route = route(request);
        let route = match self.check(&route, request) {
            Ok(()) => route,
            Err(reply) => Route::Refuse(reply),
        };
        let result = match route {
            Route::Get(encoded_id) => Wishes::of(request, self.store.replicas())
                .and_then(|wishes| self.get(encoded_id, wishes, response, context)),
            Route::Put(encoded_id) => self.write(JobKind::Put, encoded_id, request, context),
            Route::Delete(encoded_id) => self.write(JobKind::Delete, encoded_id, request, context),
            Route::Range(query) => self.range(query, request, response, context),
            Route::Status if !self.store.is_reachable() => Err(Reply::Unreachable.into()),
            Route::Status if self.link.is_poisoned() => Err(Reply::WritesRefused.into()),
            Route::Status if self.link.is_paused() => Err(Reply::Paused.into()),
            Route::Status if self.link.room() != Room::Enough => Err(Reply::NoRoom.into()),
            Route::Status if self.link.has_panicked() => Err(Reply::ReadyAfterPanic.into()),
            Route::Status => Err(Reply::Ready.into()),
            Route::Checkpoint(name) => match self.keeper.ask(context.token, name) {
                Ok(()) => Ok(Flow::Pending),
                Err(CheckpointRefusal::Off) => Err(Reply::NoCheckpoints.into()),
                Err(CheckpointRefusal::BadName) => Err(Reply::BadName.into()),
                Err(CheckpointRefusal::Busy) => Err(Reply::Overloaded.into()),
            },
            Route::OpenApi => api::send_openapi(response)
                .map(|()| Flow::Done)
                .map_err(Refusal::from),
            Route::Metrics => Err(Reply::UnknownPath.into()),
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

    /// With tokens for reading, metrics take one.
    fn shows_metrics(&self, request: &Request<'_>) -> bool {
        self.check_access(&Route::Metrics, request).is_ok()
    }

    /// Of whoever may not send it, and what nothing is done with, so that it is not taken into memory: `call`
    /// then refuses, or answers at once.
    fn takes_body_in_parts(&mut self, request: &Request<'_>) -> bool {
        let route = route(request);
        let is_unread = self.access.limits_writes() && route.right().is_none();
        is_unread || self.check(&route, request).is_err()
    }

    fn stream(
        &mut self,
        _event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        if let Some(flow) = self.large.go_on(context.token, response) {
            return flow;
        }
        self.ranges
            .go_on(context.state, context.token, response, context.now_ns)
    }

    fn abandoned(&mut self, token: RequestToken, state: u64) {
        self.large.abandoned(token);
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
        let cut = self.large.cut(completions) + self.ranges.woken(completions);
        self.link.counters().slow_readers_cut.add(cut);
        self.answer_checkpoint(completions);
        self.link.take_answers(&mut self.answers);
        for Answer { job, outcome } in self.answers.drain(..) {
            let counters = self.link.counters();
            if outcome == Outcome::Found && job.value.len() > LARGE_BYTES {
                match self.large.begin(completions, job) {
                    None => counters.get_hits.add(1),
                    Some(Reply::NotFound) => counters.get_misses.add(1),
                    Some(reply) => count(counters, reply),
                }
                continue;
            }
            let mut reply = match (outcome, job.kind) {
                (Outcome::Found, _) => None,
                (Outcome::Written, JobKind::Put) => {
                    let head = job.record_head().expect("this shard wrote the record");
                    Some(Reply::Created(head.version))
                }
                (Outcome::Written, JobKind::Delete) => Some(Reply::Accepted),
                (Outcome::Absent, _) => Some(Reply::NotFound),
                (Outcome::Refused, _) => Some(Reply::WritesRefused),
                (Outcome::Paused, _) => Some(Reply::Paused),
                (Outcome::PreconditionFailed, _) => Some(Reply::PreconditionFailed),
                (Outcome::NoRoom, _) => Some(Reply::NoRoom),
                (Outcome::TooFewReplicas, _) => Some(Reply::TooFewReplicas),
                (Outcome::Unknown, _) => Some(Reply::Unknown),
                (Outcome::Rejected, _) => Some(Reply::Rejected),
                (Outcome::Overtaken | Outcome::Busy, _) => Some(Reply::Overloaded),
                (Outcome::ReadFailed, _) | (Outcome::Written, JobKind::Get) => {
                    Some(Reply::ReadFailed)
                }
            };
            // False: the client has gone. A write is durable all the same.
            completions.respond(job.request, |response, pools| {
                if outcome == Outcome::Found {
                    // The value is in the read thread's memory: what stays here is a copy in ours.
                    if let Some(stamp) = job.stamp {
                        let (key, record) = (&job.key, &job.value);
                        self.cache.fill_late(&pools.blocks, key, record, stamp);
                    }
                    // Without memory for it nothing is sent and the server answers 503.
                    reply = match api::send_record(response, &job.value, &job.condition) {
                        Ok(reply) => reply,
                        Err(_) => return,
                    };
                }
                if let Some(reply) = reply {
                    let _ = reply.send(response);
                }
            });
            match reply {
                None => counters.get_hits.add(1),
                Some(Reply::NotFound) => counters.get_misses.add(1),
                Some(reply) => count(counters, reply),
            }
            match (reply, job.stamp) {
                // The shard's own buffers, home from the commit: they stay as they are. A record in
                // two pieces does not: it is too large to copy here.
                (Some(Reply::Created(_)), Some(stamp)) if job.head.is_empty() => {
                    self.cache.insert(job.key, job.value, stamp);
                }
                (Some(Reply::Created(_) | Reply::Accepted), _) => self.cache.remove(&job.key),
                _ => {}
            }
        }
    }

    fn write_metrics(&self, out: &mut MetricsText<'_>) {
        self.metrics.write(self.keeper.engine(), out);
    }

    fn can_stop(&self) -> bool {
        self.link.jobs_in_flight() == 0 && !self.keeper.is_busy()
    }
}

fn decoded<'a>(encoded_id: &'a [u8], scratch: &'a mut KeyScratch) -> Result<&'a [u8], Reply> {
    decode_id(encoded_id, scratch).map_err(Reply::BadId)
}

/// Counts a read, and passes on what it is to be answered with.
fn counted_read(counters: &ShardCounters, reply: Option<Reply>) -> Result<Flow, Refusal> {
    match reply {
        None => counters.get_hits.add(1),
        Some(Reply::NotFound) => counters.get_misses.add(1),
        // Counted where it is sent.
        Some(_) => {}
    }
    reply.map_or(Ok(Flow::Done), |reply| Err(reply.into()))
}

/// Counts an answer that was not a read's.
fn count(counters: &ShardCounters, reply: Reply) {
    match reply {
        Reply::Created(_) => counters.puts.add(1),
        Reply::Accepted => counters.deletes.add(1),
        Reply::Overloaded => counters.overloads.add(1),
        Reply::NoRoom => counters.no_room.add(1),
        Reply::WritesRefused | Reply::Paused | Reply::ReadFailed | Reply::Rejected => {
            counters.store_failures.add(1);
        }
        Reply::TooFewReplicas | Reply::Unknown => counters.too_few_replicas.add(1),
        // Counted by status in the server, or by the caller.
        Reply::Ready
        | Reply::ReadyAfterPanic
        | Reply::NotFound
        | Reply::UnknownPath
        | Reply::MissingId
        | Reply::MissingStart
        | Reply::BadLimit
        | Reply::BadId(_)
        | Reply::BadCondition(_)
        | Reply::BadExpiry(_)
        | Reply::BadReplicas(_)
        | Reply::NoConditions
        | Reply::Unreachable
        | Reply::LongContentType
        | Reply::BadParameter
        | Reply::DoubledField
        | Reply::PartialValue
        | Reply::EncodedValue
        | Reply::NoLength
        | Reply::NoDates
        | Reply::PreconditionFailed
        | Reply::NotAllowed(_)
        | Reply::NoCheckpoints
        | Reply::BadName
        | Reply::CheckpointMade
        | Reply::NotNew
        | Reply::CheckpointFailed
        | Reply::MethodNotAllowed { .. } => {}
    }
}
