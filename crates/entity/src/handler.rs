//! One request from its event to its response: the service that runs on every shard.
//!
//! `http::server` calls it with a complete request; reads that memory can serve get their response at once
//! (`value_cache`, then the engine's own memory); all others become a job (`executor`), and the response is sent when
//! its result returns. Buffers come from the shard's pool and return to it on this thread.

use std::sync::Arc;

use millpond_http::{
    Completions, Flow, Framing, Method, MetricsText, Request, RequestToken, Response, Service,
    ServiceContext, StreamEvent,
};
use millpond_mempool::{Buffer, PoolStats};

use crate::access::AllowedHosts;
use crate::access::{Right, ShardAccess};
use crate::api::{self, ROUTE_NAMES, Reply, Route, Sent, route};
use crate::commit::{Job, JobKind, Outcome};
use crate::condition::{Refusal, RequestOptions, acks_of, copy, first_after, head_of, record_of};
use crate::downloads::{DownloadStart, Downloads, Instead};
use crate::executor::{Answer, ShardLink};
use crate::key::{KeyScratch, decode_id};
use crate::metrics::Metrics;
use crate::metrics::ShardCounters;
use crate::monitor::{CheckpointRefusal, MonitorLink, MonitorOutcome};
use crate::parts::{LARGE_BYTES, LargeResponses};
use crate::parts::{PART_BYTES, PartSets};
use crate::range::{FirstId, RangeQuery, ScanRange};
use crate::range::{RangeRefusal, Ranges};
use crate::record::{HEAD_BYTES_MAX, SHARDS_MAX, Versions};
use crate::store::{CachedRead, Engine, Room};
use crate::strictness;
use crate::uploads::{UploadStart, Uploads};
use crate::value_cache::{Lookup, ValueCache};

/// The entity service of one shard.
pub struct EntityService<S> {
    store: Arc<S>,
    link: ShardLink,
    cache: ValueCache,
    ranges: Ranges,
    large: LargeResponses,
    uploads: Uploads,
    downloads: Downloads,
    /// No value may be longer.
    value_bytes_max: u64,
    monitor: MonitorLink,
    metrics: Arc<Metrics>,
    access: ShardAccess,
    hosts: AllowedHosts,
    scratch: KeyScratch,
    versions: Versions,
    /// Kept for its memory: empty between two calls of `woken`.
    answers: Vec<Answer>,
}

impl<S: Engine> EntityService<S> {
    /// A service that reads from `cache` and `store`, by `ranges` too, and writes through `link`, if `access` allows
    /// it.
    #[must_use]
    pub fn new(
        store: Arc<S>,
        link: ShardLink,
        cache: ValueCache,
        ranges: Ranges,
        (monitor, metrics): (MonitorLink, Arc<Metrics>),
        (access, hosts): (ShardAccess, AllowedHosts),
        (sets, value_bytes_max): (Arc<PartSets>, u64),
    ) -> Self {
        store.thread_started();
        let source = link.shard_index() + store.versions_from();
        let versions = Versions::after(source % SHARDS_MAX, store.versions_after_us());
        Self {
            store,
            link,
            cache,
            ranges,
            large: LargeResponses::default(),
            uploads: Uploads::new(Arc::clone(&sets), value_bytes_max),
            downloads: Downloads::new(sets),
            value_bytes_max,
            monitor,
            metrics,
            access,
            hosts,
            scratch: KeyScratch::new(),
            versions,
            answers: Vec::new(),
        }
    }

    /// Whether the client may do that.
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

    /// Whether the client may do that, and the service would do what the request means. Depends on the request's head
    /// alone, so the result is the same before and after its body came.
    fn check(&self, route: &Route<'_>, request: &Request<'_>) -> Result<(), Reply> {
        if !self.hosts.allow(request.authority().as_bytes()) {
            return Err(Reply::OtherHost);
        }
        self.check_access(route, request)?;
        if route.right() == Some(Right::Write) && !self.store.takes_writes() {
            return Err(Reply::ReadsOnly);
        }
        strictness::check(route, request)
    }

    fn get(
        &mut self,
        encoded_id: &[u8],
        wishes: RequestOptions,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        let RequestOptions { condition, acks } = wishes;
        let key = decode_id(encoded_id, &mut self.scratch).map_err(Reply::BadId)?;
        let start = |key: &[u8], record: Buffer, context: &ServiceContext<'_>| {
            Ok::<_, Refusal>(DownloadStart {
                request: context.token,
                key: copy(key, context)?,
                record,
                condition: condition.clone(),
                acks,
                attempt: 0,
            })
        };
        let missed = match self.cache.get(key) {
            Lookup::Hit(record) => {
                let sent = api::send_record(response, record, &condition)?;
                if sent != Sent::Parted {
                    return counted_read(self.link.counters(), sent);
                }
                let start = start(key, copy(record, context)?, context)?;
                return self.download(start, context);
            }
            Lookup::Miss(missed) => missed,
        };
        let read = self.store.get_cached(key, |record| {
            // Not copied here for every such request.
            if record.len() > LARGE_BYTES {
                return None;
            }
            self.cache.fill(&context.pools.blocks, key, record, missed);
            let sent = api::send_record(response, record, &condition);
            Some(sent.map_err(Refusal::from).and_then(|sent| {
                let parted = (sent == Sent::Parted).then(|| copy(record, context));
                Ok((sent, parted.transpose()?))
            }))
        });
        match read {
            Ok(CachedRead::Found(Some(found))) => match found? {
                (_, Some(record)) => {
                    let start = start(key, record, context)?;
                    self.download(start, context)
                }
                (sent, None) => counted_read(self.link.counters(), sent),
            },
            Ok(CachedRead::Absent) => {
                counted_read(self.link.counters(), Sent::Reply(Reply::NotFound))
            }
            Ok(CachedRead::NotCached | CachedRead::Found(None)) => {
                let bytes = key.len() + condition.heap_bytes();
                self.link.admit(JobKind::Get, bytes)?;
                let key = copy(key, context)?;
                self.link.counters().cold_reads.add(1);
                let job = Job {
                    stamp: missed.stamp,
                    condition,
                    acks,
                    ..Job::new(self.link.shard_index(), context.token, JobKind::Get, key)
                };
                self.link.submit(job);
                Ok(Flow::Pending)
            }
            Err(_) => Err(Reply::ReadFailed.into()),
        }
    }

    /// A read found a value in parts.
    fn download(
        &mut self,
        start: DownloadStart,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        self.link.admit(JobKind::GetPart, start.key.len())?;
        let begun = self
            .downloads
            .begin(start, &mut self.link, &context.pools.blocks);
        match begun {
            Ok(()) => {
                self.link.counters().get_hits.add(1);
                Ok(Flow::Pending)
            }
            Err(outcome) => Err(reply_of(outcome).unwrap_or(Reply::ReadFailed).into()),
        }
    }

    /// Whether a value is received in parts: one that may be longer than a part. Depends on the request's head alone,
    /// as [`Self::check`].
    fn is_upload(&self, route: &Route<'_>, request: &Request<'_>) -> bool {
        let may_be_long = match request.framing() {
            Framing::Length(bytes) => bytes > PART_BYTES as u64 && bytes <= self.value_bytes_max,
            Framing::Chunked => true,
            Framing::None | Framing::UntilClose => false,
        };
        may_be_long && matches!(route, Route::Put(_)) && self.store.keeps_parts()
    }

    fn upload(
        &mut self,
        encoded_id: &[u8],
        request: &Request<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        let key = decode_id(encoded_id, &mut self.scratch).map_err(Reply::BadId)?;
        let key = copy(key, context)?;
        self.check_writable(JobKind::Put)?;
        let RequestOptions { condition, acks } = self.write_wishes(request)?;
        self.link
            .admit(JobKind::Judge, key.len() + condition.heap_bytes())?;
        let start = UploadStart {
            request: context.token,
            key,
            head: head_of(request, &mut self.versions, context)?,
            condition,
            acks,
            body_bytes: match request.framing() {
                Framing::Length(bytes) => Some(bytes),
                _ => None,
            },
        };
        let blocks = &context.pools.blocks;
        Ok(self.uploads.begin(start, &mut self.link, blocks)?)
    }

    /// Whether a write could be done now.
    fn check_writable(&self, kind: JobKind) -> Result<(), Reply> {
        if self.link.is_poisoned() {
            return Err(Reply::WritesRefused);
        }
        if self.link.is_paused() {
            return Err(Reply::Paused);
        }
        match self.link.room() {
            Room::Enough => {}
            Room::ForDeletes if kind == JobKind::Delete => {}
            Room::ForDeletes | Room::None => return Err(Reply::NoRoom),
        }
        // It would wait behind all that wait already, for as long as merging takes.
        match self.link.is_stopped() {
            true => Err(Reply::Overloaded),
            false => Ok(()),
        }
    }

    fn write_wishes(&self, request: &Request<'_>) -> Result<RequestOptions, Refusal> {
        let wishes = RequestOptions::of(request, self.store.replicas())?;
        if !wishes.condition.is_none() && !self.store.judges_conditions() {
            return Err(Reply::NoConditions.into());
        }
        Ok(wishes)
    }

    fn write(
        &mut self,
        kind: JobKind,
        encoded_id: &[u8],
        request: &mut Request<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refusal> {
        let is_put = kind == JobKind::Put;
        self.check_writable(kind)?;
        let RequestOptions { condition, acks } = self.write_wishes(request)?;
        let key = decode_id(encoded_id, &mut self.scratch).map_err(Reply::BadId)?;
        // A delete's body, should there be one, means nothing and is not kept; and one that has a hold
        // is counted by it.
        let is_counted = !is_put || request.has_held_body();
        let value_len = if is_counted { 0 } else { request.body().len() };
        let head_len = if is_put { HEAD_BYTES_MAX } else { 0 };
        let held_bytes = key.len() + head_len + value_len + condition.heap_bytes();
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
            ..Job::new(self.link.shard_index(), context.token, kind, key)
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

    fn answer_operator(&mut self, completions: &mut Completions<'_>) {
        if let Some(answer) = self.monitor.take_answer() {
            completions.respond(answer.request, |response, _| {
                let reply = match answer.outcome {
                    MonitorOutcome::Made => Reply::CheckpointMade,
                    MonitorOutcome::Done => Reply::UpkeepDone,
                    MonitorOutcome::NotNew => Reply::NotNew,
                    MonitorOutcome::NoRoom => Reply::NoRoom,
                    MonitorOutcome::Failed => Reply::CheckpointFailed,
                };
                // Without memory for it nothing is sent and the server responds with 503.
                let _ = reply.send(response);
            });
        }
    }

    /// A part of an upload's body came, or its end.
    fn upload_event(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Option<Flow> {
        let blocks = &context.pools.blocks;
        let result = match event {
            StreamEvent::Body(bytes) => self.uploads.body(
                context.token,
                bytes,
                (&mut self.link, blocks),
                context.now_ns,
            ),
            StreamEvent::BodyEnd { .. } => {
                self.uploads
                    .body_ended(context.token, &mut self.link, blocks)
            }
            StreamEvent::Room | StreamEvent::Resumed => None,
        }?;
        Some(result.unwrap_or_else(|reply| {
            count(self.link.counters(), reply);
            // Without memory even for this, nothing is sent and the server responds with 503.
            let _ = reply.send(response);
            Flow::Done
        }))
    }

    /// Responds to clients that send too slowly while others wait for the memory; returns how many.
    fn cut_uploads(&mut self, completions: &mut Completions<'_>) -> u64 {
        let mut count = 0;
        while let Some(request) = self.uploads.cut_one() {
            completions.respond(request, |response, _| {
                // Without memory for it nothing is sent and the server responds with 503.
                let _ = Reply::TooSlow.send(response);
            });
            count += 1;
        }
        count
    }

    /// Responds with a sentence, and counts it.
    fn refuse(&self, completions: &mut Completions<'_>, request: RequestToken, outcome: Outcome) {
        let reply = reply_of(outcome).unwrap_or(Reply::ReadFailed);
        match reply {
            Reply::NotFound => self.link.counters().get_misses.add(1),
            reply => count(self.link.counters(), reply),
        }
        completions.respond(request, |response, _| {
            // Without memory for it nothing is sent and the server responds with 503.
            let _ = reply.send(response);
        });
    }

    /// A job has returned.
    fn take_answer(&mut self, Answer { job, outcome }: Answer, completions: &mut Completions<'_>) {
        let request = job.request;
        match job.kind {
            JobKind::Judge | JobKind::Hold | JobKind::Part => {
                let uploads = &mut self.uploads;
                let failed = uploads.answered(job, outcome, completions, &mut self.link);
                if let Some(outcome) = failed {
                    self.refuse(completions, request, outcome);
                }
            }
            JobKind::GetPart => {
                let downloads = &mut self.downloads;
                match downloads.part_came(job, outcome, completions, &mut self.link) {
                    None => {}
                    Some(Instead::Outcome(outcome)) => self.refuse(completions, request, outcome),
                    Some(Instead::Cut) => drop(completions.cut(request)),
                }
            }
            JobKind::Get if outcome == Outcome::Found => self.read_came(job, completions),
            JobKind::Get => self.refuse(completions, request, outcome),
            JobKind::Put | JobKind::Delete => self.write_came(job, outcome, completions),
        }
    }

    /// A read thread found a record.
    fn read_came(&mut self, job: Job, completions: &mut Completions<'_>) {
        let counters = self.link.counters();
        let counted = |reply: Option<Reply>| match reply {
            None => counters.get_hits.add(1),
            Some(Reply::NotFound) => counters.get_misses.add(1),
            Some(reply) => count(counters, reply),
        };
        if job.value.len() > LARGE_BYTES {
            return counted(self.large.begin(completions, job));
        }
        let mut sent = Sent::Whole;
        completions.continue_with(job.request, |response, pools| {
            // The value is in the read thread's memory: the shard keeps a copy in its own.
            if let Some(stamp) = job.stamp {
                let (key, record) = (&job.key, &job.value);
                self.cache.fill_late(&pools.blocks, key, record, stamp);
            }
            match api::send_record(response, &job.value, &job.condition) {
                Ok(Sent::Parted) => {
                    sent = Sent::Parted;
                    return Flow::Pending;
                }
                Ok(Sent::Whole) => {}
                Ok(Sent::Reply(reply)) => {
                    sent = Sent::Reply(reply);
                    let _ = reply.send(response);
                }
                // Without memory for it nothing is sent and the server responds with 503.
                Err(_) => {}
            }
            Flow::Done
        });
        match sent {
            Sent::Whole => counted(None),
            Sent::Reply(reply) => counted(Some(reply)),
            Sent::Parted => {
                counted(None);
                let request = job.request;
                let start = DownloadStart {
                    request,
                    key: job.key,
                    record: job.value,
                    condition: job.condition,
                    acks: job.acks,
                    attempt: job.attempt,
                };
                let blocks = &completions.pools().blocks;
                if let Err(outcome) = self.downloads.begin(start, &mut self.link, blocks) {
                    self.refuse(completions, request, outcome);
                }
            }
        }
    }

    /// A write was done, or refused.
    fn write_came(&mut self, job: Job, outcome: Outcome, completions: &mut Completions<'_>) {
        let reply = match (outcome, job.kind) {
            (Outcome::Written, JobKind::Put) => {
                let head = job.record_head().expect("this shard wrote the record");
                Reply::Created(head.version)
            }
            (Outcome::Written, _) => Reply::Accepted,
            (outcome, _) => reply_of(outcome).unwrap_or(Reply::ReadFailed),
        };
        // False: the client has gone. A write is durable even so.
        completions.respond(job.request, |response, _| {
            // Without memory for it nothing is sent and the server responds with 503.
            let _ = reply.send(response);
        });
        if job.kind == JobKind::Put {
            self.uploads.put_answered(job.request);
        }
        count(self.link.counters(), reply);
        match (reply, job.stamp) {
            // The shard's own buffers, home from the commit: they stay as they are. A record in
            // two pieces does not: it is too large to copy here.
            (Reply::Created(_), Some(stamp)) if job.head.is_empty() => {
                let blocks = &completions.pools().blocks;
                self.cache.insert(blocks, job.key, job.value, stamp);
            }
            (Reply::Created(_) | Reply::Accepted, _) => self.cache.remove(&job.key),
            _ => {}
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
        context.route = route.metric_index();
        // One that comes with its body has been checked: `takes_body_in_parts` has returned false.
        let checked = match request.body() {
            [] => self.check(&route, request),
            _ => Ok(()),
        };
        let route = match checked {
            Ok(()) => route,
            Err(reply) => Route::Refuse(reply),
        };
        let result = match route {
            Route::Get(encoded_id) => RequestOptions::of(request, self.store.replicas())
                .and_then(|wishes| self.get(encoded_id, wishes, response, context)),
            Route::Put(encoded_id) if self.is_upload(&route, request) => {
                self.upload(encoded_id, request, context)
            }
            Route::Put(encoded_id) => self.write(JobKind::Put, encoded_id, request, context),
            Route::Delete(encoded_id) => self.write(JobKind::Delete, encoded_id, request, context),
            Route::Range(query) => self.range(query, request, response, context),
            Route::Status if !self.store.is_reachable() => Err(Reply::Unreachable.into()),
            Route::Status if self.link.is_poisoned() => Err(Reply::WritesRefused.into()),
            Route::Status if self.link.is_paused() => Err(Reply::Paused.into()),
            Route::Status if self.link.room() != Room::Enough => Err(Reply::NoRoom.into()),
            Route::Status if !self.store.takes_writes() => Err(Reply::ReadyToRead.into()),
            Route::Status if self.link.has_panicked() => Err(Reply::ReadyAfterPanic.into()),
            Route::Status => Err(Reply::Ready.into()),
            Route::Checkpoint(name) => match self.monitor.ask(context.token, name) {
                Ok(()) => Ok(Flow::Pending),
                Err(CheckpointRefusal::Off) => Err(Reply::NoCheckpoints.into()),
                Err(CheckpointRefusal::BadName) => Err(Reply::BadName.into()),
                Err(CheckpointRefusal::Busy) => Err(Reply::UpkeepBusy.into()),
            },
            Route::Upkeep(upkeep) => match self.monitor.ask_upkeep(context.token, upkeep) {
                Ok(()) => Ok(Flow::Pending),
                Err(_) => Err(Reply::UpkeepBusy.into()),
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
        // Without memory even for this, nothing is sent and the server responds with 503.
        let _ = reply.send(response);
        Flow::Done
    }

    fn routes(&self) -> &'static [&'static str] {
        &ROUTE_NAMES
    }

    /// With tokens for reading, metrics take one.
    fn shows_metrics(&self, request: &Request<'_>) -> bool {
        self.hosts.allow(request.authority().as_bytes())
            && self.check_access(&Route::Metrics, request).is_ok()
    }

    /// For clients without permission, and for bodies that are not used, so that they are not kept in memory: `call`
    /// then refuses, or responds at once.
    fn takes_body_in_parts(&mut self, request: &Request<'_>) -> bool {
        let route = route(request);
        let is_unread = self.access.limits_writes() && route.right().is_none();
        let is_refused = self.check(&route, request).is_err();
        is_unread || is_refused || self.is_upload(&route, request)
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        if let Some(flow) = self.upload_event(event, response, context) {
            return flow;
        }
        let blocks = &context.pools.blocks;
        let (downloads, link) = (&mut self.downloads, &mut self.link);
        if let Some(flow) = downloads.go_on(context.token, response, link, blocks) {
            return flow;
        }
        if let Some(flow) = self.large.go_on(context.token, response) {
            return flow;
        }
        self.ranges
            .go_on(context.state, context.token, response, context.now_ns)
    }

    fn abandoned(&mut self, token: RequestToken, state: u64) {
        if self.uploads.abandoned(token) || self.downloads.abandoned(token) {
            return;
        }
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

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
        let cut = self.large.cut(completions)
            + self.ranges.on_wake(completions)
            + self.cut_uploads(completions)
            + self.downloads.cut(completions);
        self.link.counters().slow_readers_cut.add(cut);
        self.answer_operator(completions);
        let mut answers = std::mem::take(&mut self.answers);
        self.link.take_answers(&mut answers);
        for answer in answers.drain(..) {
            self.take_answer(answer, completions);
        }
        self.answers = answers;
    }

    fn write_metrics(&self, out: &mut MetricsText<'_>) {
        self.metrics.write(self.monitor.engine(), out);
    }

    fn can_stop(&self) -> bool {
        self.link.jobs_in_flight() == 0 && !self.monitor.is_busy()
    }
}

fn decoded<'a>(encoded_id: &'a [u8], scratch: &'a mut KeyScratch) -> Result<&'a [u8], Reply> {
    decode_id(encoded_id, scratch).map_err(Reply::BadId)
}

/// The response to a job that failed.
fn reply_of(outcome: Outcome) -> Option<Reply> {
    Some(match outcome {
        Outcome::Absent => Reply::NotFound,
        Outcome::Refused => Reply::WritesRefused,
        Outcome::Paused => Reply::Paused,
        Outcome::PreconditionFailed => Reply::PreconditionFailed,
        Outcome::NoRoom => Reply::NoRoom,
        Outcome::TooFewReplicas => Reply::TooFewReplicas,
        Outcome::Unknown => Reply::Unknown,
        Outcome::Rejected => Reply::Rejected,
        Outcome::Overtaken | Outcome::Busy => Reply::Overloaded,
        Outcome::ReadFailed => Reply::ReadFailed,
        Outcome::Written | Outcome::Found | Outcome::Granted => return None,
    })
}

/// Counts a read, and returns its response.
fn counted_read(counters: &ShardCounters, sent: Sent) -> Result<Flow, Refusal> {
    match sent {
        Sent::Whole | Sent::Parted => counters.get_hits.add(1),
        Sent::Reply(Reply::NotFound) => counters.get_misses.add(1),
        // Counted where it is sent.
        Sent::Reply(_) => {}
    }
    match sent {
        Sent::Whole | Sent::Parted => Ok(Flow::Done),
        Sent::Reply(reply) => Err(reply.into()),
    }
}

/// Counts a response that was not a read's.
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
        | Reply::ReadyToRead
        | Reply::ReadsOnly
        | Reply::OtherHost
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
        | Reply::BadEncoding
        | Reply::TooLarge
        | Reply::TooSlow
        | Reply::NoLength
        | Reply::NoDates
        | Reply::PreconditionFailed
        | Reply::NotAllowed(_)
        | Reply::NoCheckpoints
        | Reply::BadName
        | Reply::CheckpointMade
        | Reply::UpkeepDone
        | Reply::UpkeepBusy
        | Reply::NotNew
        | Reply::CheckpointFailed
        | Reply::OtherMethod { .. } => {}
    }
}
