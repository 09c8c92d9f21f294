//! Values in parts on their way out: a part is read when the one before it is being sent.
//!
//! ```text
//! shard: record found -> GetPart job -> read thread       a hold on each part, as on every large value
//! shard: part 0 came -> the response begins -> written as there is room -> the next part
//! ```
//!
//! Held at a time: the part that is being written and the next one. The set is pinned, so that what was begun can be
//! completed however often the id is overwritten meanwhile. Where the first part is not there, the record that named it
//! was old: it is read again.

use std::collections::HashMap;
use std::sync::Arc;

use millpond_http::{BodyHold, Completions, Flow, Interest, RequestToken, Response};
use millpond_io::monotonic_ns;
use millpond_mempool::{BlockPool, Buffer, PoolError};

use crate::api;
use crate::commit::{Job, JobKind, Outcome};
use crate::condition::Condition;
use crate::executor::ShardLink;
use crate::parts::{PartSets, Pinned, part_key};
use crate::record::{Extent, Head, Value, Version};
use crate::uploads::copy_of;

/// How often a record whose parts were gone is read again.
const ATTEMPTS_MAX: u8 = 8;

/// A read that found a value in parts.
pub(crate) struct DownloadStart {
    pub(crate) request: RequestToken,
    pub(crate) key: Buffer,
    /// The entity whose value is in parts.
    pub(crate) record: Buffer,
    pub(crate) condition: Condition,
    pub(crate) acks: u16,
    pub(crate) attempt: u8,
}

struct Download {
    start: DownloadStart,
    set: Version,
    _pinned: Pinned,
    extent: Extent,
    /// Asked for until now.
    asked: u32,
    is_asking: bool,
    /// The part that is being written, and how much of it is.
    current: Option<Job>,
    at: usize,
    next: Option<Job>,
    written_bytes: u64,
    has_begun: bool,
    /// The client has gone, or there is no memory for the response, which is not completed.
    is_over: bool,
}

/// The response sent instead of a value.
pub(crate) enum Instead {
    /// The outcome of a read.
    Outcome(Outcome),
    /// Nothing more: the connection is to be cut, its response cannot be completed.
    Cut,
}

/// Those of one shard.
pub(crate) struct Downloads {
    downloads: HashMap<RequestToken, Download>,
    sets: Arc<PartSets>,
}

impl Downloads {
    pub(crate) fn new(sets: Arc<PartSets>) -> Self {
        Self {
            downloads: HashMap::new(),
            sets,
        }
    }

    /// Begins one, or has the record read again if its parts are gone by now.
    ///
    /// # Errors
    /// Nothing was begun, and this is the outcome of the read.
    pub(crate) fn begin(
        &mut self,
        start: DownloadStart,
        link: &mut ShardLink,
        blocks: &BlockPool,
    ) -> Result<(), Outcome> {
        let Ok((head, Value::Parted(extent))) = Head::split(&start.record) else {
            return Err(Outcome::ReadFailed);
        };
        let set = head.version;
        let Some(pinned) = Pinned::new(&self.sets, set) else {
            return read_again(start, link);
        };
        let request = start.request;
        let mut download = Download {
            start,
            set,
            _pinned: pinned,
            extent,
            asked: 0,
            is_asking: false,
            current: None,
            at: 0,
            next: None,
            written_bytes: 0,
            has_begun: false,
            is_over: false,
        };
        download.ask(link, blocks).map_err(|_| Outcome::Busy)?;
        self.downloads.insert(request, download);
        Ok(())
    }

    /// Handles a part from the read thread. A returned value ends the download; the caller handles it.
    pub(crate) fn part_came(
        &mut self,
        job: Job,
        outcome: Outcome,
        completions: &mut Completions<'_>,
        link: &mut ShardLink,
    ) -> Option<Instead> {
        let request = job.request;
        let download = self.downloads.get_mut(&request)?;
        download.is_asking = false;
        if download.is_over {
            self.end(request);
            return None;
        }
        match outcome {
            Outcome::Found if job.value.len() == download.extent.part_len(download.asked - 1) => {
                match download.current {
                    None => download.current = Some(job),
                    Some(_) => download.next = Some(job),
                }
            }
            // Others have the memory. Once it has begun, it waits for as long as its client does.
            Outcome::Busy if download.has_begun => download.asked -= 1,
            Outcome::Absent if !download.has_begun => {
                let download = self.downloads.remove(&request)?;
                return read_again(download.start, link).err().map(Instead::Outcome);
            }
            _ => {
                let has_begun = download.has_begun;
                self.end(request);
                return Some(match (has_begun, outcome) {
                    (true, _) => Instead::Cut,
                    (false, Outcome::Found) => Instead::Outcome(Outcome::ReadFailed),
                    (false, outcome) => Instead::Outcome(outcome),
                });
            }
        }
        completions.continue_with(request, |response, _| download.write(response));
        self.look_after(request, link, &completions.pools().blocks)
    }

    /// There is room for more. `None`: the request is no download's.
    pub(crate) fn go_on(
        &mut self,
        request: RequestToken,
        response: &mut Response<'_>,
        link: &mut ShardLink,
        blocks: &BlockPool,
    ) -> Option<Flow> {
        let download = self.downloads.get_mut(&request)?;
        let flow = download.write(response);
        match self.look_after(request, link, blocks) {
            None => Some(flow),
            // It is not completed, so that the server cuts it.
            Some(_) => Some(Flow::Done),
        }
    }

    /// The client has gone. False: the request is no download's.
    pub(crate) fn abandoned(&mut self, request: RequestToken) -> bool {
        let is_ours = self.downloads.contains_key(&request);
        self.end(request);
        is_ours
    }

    /// Cuts those whose clients read too slowly while others wait for the memory; returns how many.
    pub(crate) fn cut(&mut self, completions: &mut Completions<'_>) -> u64 {
        let downloads = self.downloads.values().filter(|download| {
            let jobs = [&download.current, &download.next].into_iter().flatten();
            let mut holds = jobs.filter_map(|job| job.hold.as_ref());
            !download.is_over && holds.any(BodyHold::is_cut)
        });
        downloads
            .map(|download| u64::from(completions.cut(download.start.request)))
            .sum()
    }

    /// Forgets one that is complete, or asks for its next part.
    fn look_after(
        &mut self,
        request: RequestToken,
        link: &mut ShardLink,
        blocks: &BlockPool,
    ) -> Option<Instead> {
        let download = self.downloads.get_mut(&request)?;
        if download.is_complete() || download.is_over {
            self.end(request);
            return None;
        }
        if download.wants_part() && download.ask(link, blocks).is_err() {
            self.end(request);
            return Some(Instead::Cut);
        }
        None
    }

    /// It is abandoned; it is forgotten once no job of it is under way.
    fn end(&mut self, request: RequestToken) {
        let Some(download) = self.downloads.get_mut(&request) else {
            return;
        };
        download.is_over = true;
        download.current = None;
        download.next = None;
        if !download.is_asking {
            self.downloads.remove(&request);
        }
    }
}

/// The record named parts that are gone: it was overwritten meanwhile.
fn read_again(start: DownloadStart, link: &mut ShardLink) -> Result<(), Outcome> {
    if start.attempt == ATTEMPTS_MAX {
        return Err(Outcome::Overtaken);
    }
    link.submit_or_delay(Job {
        condition: start.condition,
        acks: start.acks,
        attempt: start.attempt + 1,
        ..Job::new(link.shard_index(), start.request, JobKind::Get, start.key)
    });
    Ok(())
}

impl Download {
    fn wants_part(&self) -> bool {
        !self.is_asking && self.next.is_none() && self.asked < self.extent.parts()
    }

    fn ask(&mut self, link: &mut ShardLink, blocks: &BlockPool) -> Result<(), PoolError> {
        let key = copy_of(&part_key(self.set, self.asked), blocks)?;
        self.asked += 1;
        self.is_asking = true;
        link.submit_or_delay(Job::new(
            link.shard_index(),
            self.start.request,
            JobKind::GetPart,
            key,
        ));
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.written_bytes == self.extent.value_bytes
    }

    fn write(&mut self, response: &mut Response<'_>) -> Flow {
        if !self.has_begun {
            match api::start_parted(response, &self.start.record) {
                Ok(()) => self.has_begun = true,
                // Nothing was sent, and the server responds with 503.
                Err(_) => {
                    self.is_over = true;
                    return Flow::Done;
                }
            }
        }
        while let Some(job) = &self.current {
            let part = &job.value[self.at..];
            let room_bytes = response.room_bytes();
            if room_bytes == 0 {
                return Flow::Stream(Interest::ROOM);
            }
            let written = &part[..part.len().min(room_bytes)];
            // Without memory it cannot be completed: the server cuts it, which the client sees.
            if response.write(written).is_err() {
                self.is_over = true;
                return Flow::Done;
            }
            self.written_bytes += written.len() as u64;
            self.at += written.len();
            if let Some(hold) = &job.hold {
                hold.moved(written.len() as u64, monotonic_ns());
            }
            if self.at == job.value.len() {
                self.current = self.next.take();
                self.at = 0;
            }
        }
        match self.is_complete() {
            true => Flow::Done,
            false => Flow::Pending,
        }
    }
}
