//! Values on their way in that may be longer than a part: written part by part as they arrive.
//!
//! ```text
//! shard: call -> Judge job -> read thread             412 comes before any body
//! shard: body begins -> Hold job -> read thread       waits for memory, then 503
//! shard: body ... -> Part jobs -> writer thread       one under way while the next is received
//! shard: end of body -> Put job with the record       the response to it is the response to the request
//! ```
//!
//! Memory of each at a time: a part that is being written, and one that is being received ([`UPLOAD_BYTES`], of which
//! there is a budget), and the rest of one receive. An announcement costs nothing: before [`FREE_BYTES`] have come
//! there is no hold. Clients that hold one and send too slowly while others wait get 408. A body no longer than a part
//! is stored as any other value. Parts written by an upload that is cut off or refused are found as dead later
//! (`parts`): the upload keeps its set pinned until no job of it is under way.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millpond_http::{BodyHold, Completions, Flow, Interest, RequestToken};
use millpond_mempool::{BlockPool, Buffer, PoolError};

use crate::api::Reply;
use crate::commit::{Job, JobKind, Outcome};
use crate::condition::Condition;
use crate::executor::ShardLink;
use crate::parts::{COUNT_UNKNOWN, PART_BYTES, PartSets, Pinned, header_key, part_key};
use crate::record::{Extent, Head, PARTED_BYTES_MAX, Version};

/// Memory of an upload.
pub(crate) const UPLOAD_BYTES: usize = 2 * PART_BYTES;

/// So much of a body is kept without a hold, as of every request.
const FREE_BYTES: u64 = 64 << 10;

/// Parameters of a new upload.
pub(crate) struct UploadStart {
    pub(crate) request: RequestToken,
    pub(crate) key: Buffer,
    /// The record's head, as for a whole value.
    pub(crate) head: Buffer,
    pub(crate) condition: Condition,
    pub(crate) acks: u16,
    /// As the request announced it.
    pub(crate) body_bytes: Option<u64>,
}

/// The current job of an upload, one at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Judge,
    Hold,
    Header,
    Part,
    Record,
}

struct Upload {
    start: UploadStart,
    set: Version,
    /// From its first part on.
    pinned: Option<Pinned>,
    filling: Buffer,
    /// Received whole and not being written; the first is the next. More than one only where a receive brought more.
    full: VecDeque<Buffer>,
    /// Written or under way.
    parts: u32,
    parts_bytes: u64,
    received_bytes: u64,
    is_header_written: bool,
    has_ended: bool,
    step: Option<Step>,
    /// The client has gone, or has its response.
    is_over: bool,
    hold: Option<BodyHold>,
}

/// Those of one shard.
pub(crate) struct Uploads {
    uploads: HashMap<RequestToken, Upload>,
    sets: Arc<PartSets>,
    value_bytes_max: u64,
}

impl Uploads {
    pub(crate) fn new(sets: Arc<PartSets>, value_bytes_max: u64) -> Self {
        Self {
            uploads: HashMap::new(),
            sets,
            value_bytes_max,
        }
    }

    /// Begins one. The shard's link has admitted a job with a key.
    ///
    /// # Errors
    /// Without memory for it; nothing was begun then.
    pub(crate) fn begin(
        &mut self,
        start: UploadStart,
        link: &mut ShardLink,
        blocks: &BlockPool,
    ) -> Result<Flow, PoolError> {
        let head = Head::of(&start.head).expect("this shard wrote it");
        let set = head.version;
        let step = match start.condition.is_none() {
            true => None,
            false => {
                link.submit(Job {
                    condition: start.condition.clone(),
                    ..Job::new(
                        link.shard_index(),
                        start.request,
                        JobKind::Judge,
                        copy_of(&start.key, blocks)?,
                    )
                });
                Some(Step::Judge)
            }
        };
        let upload = Upload {
            set,
            pinned: None,
            filling: Buffer::new(),
            full: VecDeque::new(),
            parts: 0,
            parts_bytes: 0,
            received_bytes: 0,
            is_header_written: false,
            has_ended: false,
            step,
            is_over: false,
            hold: None,
            start,
        };
        self.uploads.insert(upload.start.request, upload);
        Ok(match step {
            None => Flow::Stream(Interest::BODY),
            Some(_) => Flow::Pending,
        })
    }

    /// Takes a part of the body in. `None`: the request is no upload's. An error ends the upload: it is to be sent.
    pub(crate) fn body(
        &mut self,
        request: RequestToken,
        bytes: &[u8],
        (link, blocks): (&mut ShardLink, &BlockPool),
        now_ns: u64,
    ) -> Option<Result<Flow, Reply>> {
        let upload = self.uploads.get_mut(&request)?;
        let result = upload
            .take(bytes, self.value_bytes_max, blocks, now_ns)
            .and_then(|()| upload.go_on(&self.sets, link, blocks));
        Some(self.or_over(request, result))
    }

    /// The body is complete. As [`Self::body`].
    pub(crate) fn body_ended(
        &mut self,
        request: RequestToken,
        link: &mut ShardLink,
        blocks: &BlockPool,
    ) -> Option<Result<Flow, Reply>> {
        let upload = self.uploads.get_mut(&request)?;
        upload.has_ended = true;
        let result = upload.go_on(&self.sets, link, blocks);
        Some(self.or_over(request, result))
    }

    fn or_over<T>(&mut self, request: RequestToken, result: Result<T, Reply>) -> Result<T, Reply> {
        if result.is_err() {
            self.end(request);
        }
        result
    }

    /// The client has gone. False: the request is no upload's.
    pub(crate) fn abandoned(&mut self, request: RequestToken) -> bool {
        let is_ours = self.uploads.contains_key(&request);
        self.end(request);
        is_ours
    }

    /// It is abandoned; it is forgotten once no job of it is under way.
    fn end(&mut self, request: RequestToken) {
        let Some(upload) = self.uploads.get_mut(&request) else {
            return;
        };
        upload.is_over = true;
        upload.hold = None;
        upload.filling = Buffer::new();
        upload.full.clear();
        if upload.step.is_none() {
            self.uploads.remove(&request);
        }
    }

    /// The result of the record's Put; the caller responds. Nothing, if it belongs to no upload.
    pub(crate) fn put_answered(&mut self, request: RequestToken) {
        if let Some(upload) = self.uploads.get_mut(&request) {
            upload.step = None;
            self.end(request);
        }
    }

    /// A job of an upload returned; a returned value ends it, and is to be sent.
    pub(crate) fn answered(
        &mut self,
        mut job: Job,
        outcome: Outcome,
        completions: &mut Completions<'_>,
        link: &mut ShardLink,
    ) -> Option<Outcome> {
        let request = job.request;
        let upload = self.uploads.get_mut(&request)?;
        let step = upload.step.take();
        if upload.is_over {
            self.end(request);
            return None;
        }
        match (step, outcome) {
            (Some(Step::Judge), Outcome::Granted) => {}
            (Some(Step::Hold), Outcome::Granted) => upload.hold = job.hold.take(),
            (Some(Step::Header), Outcome::Written) => upload.is_header_written = true,
            (Some(Step::Part), Outcome::Written) => {}
            _ => {
                self.end(request);
                return Some(outcome);
            }
        }
        // Its memory goes back before more is asked for.
        drop(job);
        match upload.go_on(&self.sets, link, &completions.pools().blocks) {
            Ok(flow) => {
                completions.continue_with(request, |_, _| flow);
                None
            }
            Err(_) => {
                self.end(request);
                Some(Outcome::Busy)
            }
        }
    }

    /// An upload whose client sends too slowly while others wait for the memory. It is over, and gets its response.
    pub(crate) fn cut_one(&mut self) -> Option<RequestToken> {
        let is_cut = |upload: &Upload| upload.hold.as_ref().is_some_and(BodyHold::is_cut);
        let mut cut = self
            .uploads
            .values()
            .filter(|upload| !upload.is_over && is_cut(upload));
        let request = cut.next()?.start.request;
        self.end(request);
        Some(request)
    }
}

impl Upload {
    fn take(
        &mut self,
        mut bytes: &[u8],
        value_bytes_max: u64,
        blocks: &BlockPool,
        now_ns: u64,
    ) -> Result<(), Reply> {
        self.received_bytes += bytes.len() as u64;
        if self.received_bytes > value_bytes_max {
            return Err(Reply::TooLarge);
        }
        if let Some(hold) = &self.hold {
            hold.moved(bytes.len() as u64, now_ns);
        }
        while !bytes.is_empty() {
            if self.filling.is_empty()
                && let Some(body_bytes) = self.start.body_bytes
            {
                let taken_bytes = self.received_bytes - bytes.len() as u64;
                let left_bytes = body_bytes.saturating_sub(taken_bytes);
                let capacity = left_bytes.min(PART_BYTES as u64) as usize;
                self.filling =
                    Buffer::with_capacity(blocks, capacity).map_err(|_| Reply::Overloaded)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - self.filling.len()));
            self.filling
                .extend_from_slice(blocks, now)
                .map_err(|_| Reply::Overloaded)?;
            bytes = later;
            if self.filling.len() == PART_BYTES {
                self.full.push_back(std::mem::take(&mut self.filling));
            }
        }
        Ok(())
    }

    /// Submits the next job, if none is under way, and returns the event that the exchange waits for.
    fn go_on(
        &mut self,
        sets: &Arc<PartSets>,
        link: &mut ShardLink,
        blocks: &BlockPool,
    ) -> Result<Flow, Reply> {
        if self.step.is_none()
            && let Some((step, job)) = self.next(link.shard_index(), blocks)?
        {
            if step == Step::Header {
                // Before any part of the set exists. No other upload has this version, so it is not dead.
                self.pinned = Pinned::new(sets, self.set);
                debug_assert!(self.pinned.is_some(), "a version comes once");
            }
            self.step = Some(step);
            link.submit_or_delay(job);
        }
        let waits = matches!(self.step, Some(Step::Hold | Step::Judge));
        let receives = self.full.is_empty() && !self.has_ended && !waits;
        Ok(match receives {
            true => Flow::Stream(Interest::BODY),
            false => Flow::Pending,
        })
    }

    fn next(
        &mut self,
        shard_index: usize,
        blocks: &BlockPool,
    ) -> Result<Option<(Step, Job)>, Reply> {
        let has_part = !self.full.is_empty();
        let is_parted = has_part || self.is_header_written;
        let step = match (is_parted, self.has_ended) {
            _ if self.hold.is_none() && self.received_bytes > FREE_BYTES => Step::Hold,
            (false, false) => return Ok(None),
            (true, _) if !self.is_header_written => Step::Header,
            (true, false) if !has_part => return Ok(None),
            (true, _) if has_part || !self.filling.is_empty() => Step::Part,
            (_, true) | (true, false) => Step::Record,
        };
        let job = match step {
            Step::Judge | Step::Record => self.put(shard_index, is_parted, blocks),
            Step::Hold => Ok(Job::new(
                shard_index,
                self.start.request,
                JobKind::Hold,
                Buffer::new(),
            )),
            Step::Header => self.header(shard_index, blocks),
            Step::Part => self.part(shard_index, blocks),
        };
        let job = job.map_err(|_| Reply::Overloaded)?;
        Ok(Some((step, job)))
    }

    fn header(&self, shard_index: usize, blocks: &BlockPool) -> Result<Job, PoolError> {
        let count = self.start.body_bytes.map_or(COUNT_UNKNOWN, |bytes| {
            let count = bytes.div_ceil(PART_BYTES as u64);
            u32::try_from(count).unwrap_or(COUNT_UNKNOWN)
        });
        let key = copy_of(&header_key(self.set), blocks)?;
        let value = [&count.to_le_bytes()[..], &self.start.key];
        Ok(Job {
            value: joined(value, blocks)?,
            ..Job::new(shard_index, self.start.request, JobKind::Part, key)
        })
    }

    fn part(&mut self, shard_index: usize, blocks: &BlockPool) -> Result<Job, PoolError> {
        let key = copy_of(&part_key(self.set, self.parts), blocks)?;
        let value = self.full.pop_front();
        let value = value.unwrap_or_else(|| std::mem::take(&mut self.filling));
        self.parts += 1;
        self.parts_bytes += value.len() as u64;
        Ok(Job {
            value,
            ..Job::new(shard_index, self.start.request, JobKind::Part, key)
        })
    }

    /// Of a value in parts, or of one that is short enough to be in its record.
    fn put(
        &mut self,
        shard_index: usize,
        is_parted: bool,
        blocks: &BlockPool,
    ) -> Result<Job, PoolError> {
        let start = &mut self.start;
        let (head, value) = match is_parted {
            false => (
                std::mem::take(&mut start.head),
                std::mem::take(&mut self.filling),
            ),
            true => {
                let extent = Extent {
                    value_bytes: self.parts_bytes,
                    part_bytes: PART_BYTES as u32,
                };
                let mut room = [0; PARTED_BYTES_MAX];
                let head = Head::of(&start.head).expect("this shard wrote it");
                let len = head.write_parted(extent, &mut room);
                (Buffer::new(), copy_of(&room[..len], blocks)?)
            }
        };
        let key = std::mem::take(&mut start.key);
        Ok(Job {
            head,
            value,
            condition: std::mem::take(&mut start.condition),
            acks: start.acks,
            ..Job::new(shard_index, start.request, JobKind::Put, key)
        })
    }
}

pub(crate) fn copy_of(bytes: &[u8], blocks: &BlockPool) -> Result<Buffer, PoolError> {
    joined([bytes, &[]], blocks)
}

fn joined(pieces: [&[u8]; 2], blocks: &BlockPool) -> Result<Buffer, PoolError> {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let mut joined = Buffer::with_capacity(blocks, len)?;
    joined.append_all_within_capacity(pieces);
    Ok(joined)
}
