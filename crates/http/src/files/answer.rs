//! Responses with files: heads with their fields, bodies out of the cache or a file.
//!
//! The service calls this with a name that is in the cache or was resolved; work that is not done at once comes back as
//! a [`Todo`], which waits as a task.

use std::io::{IoSliceMut, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

use millpond_mempool::{BlockPool, Buffer};
use rustix::fs::{fstat, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use crate::head_text::{Field, FieldName, FieldValue};
use crate::response::{BodyLength, Response};
use crate::service::{Flow, Interest, RequestToken};
use crate::status::StatusCode;

use super::cache::CachedFile;
use super::path::Work;
use super::path::{OpenRefusal, Opened};
use super::selection::{
    ByteRange, KeptQuestion, Question, Selection, Validators, Version, redirect_to_directory,
    refuse_open, seconds_since_epoch, select,
};
use super::{FileTask, Files, path};

const TEXT_PLAIN: Option<FieldValue<'_>> = Some(FieldValue::TEXT_PLAIN);

/// `bytes `, three numbers, two separators.
const CONTENT_RANGE_BYTES_MAX: usize = 6 + 3 * 20 + 2;

/// Where a response is made.
pub(super) struct SendContext<'a> {
    pub(super) blocks: &'a BlockPool,
    pub(super) now_ns: u64,
}

/// The remaining work for a request.
pub(super) enum Todo {
    /// The response is complete, or must be cut.
    Nothing,
    /// Its file is being sent.
    Send(Transfer, TransferStep),
}

/// Fields of a head that describe a file.
struct FileHead<'a> {
    validators: &'a Validators,
    media_type: FieldValue<'static>,
    size_bytes: u64,
}

/// Field values that are made for one response.
struct RangeText {
    text: [u8; CONTENT_RANGE_BYTES_MAX],
    len: usize,
}

impl RangeText {
    fn of(range: Option<ByteRange>, size_bytes: u64) -> Self {
        let mut text = [0; CONTENT_RANGE_BYTES_MAX];
        let mut rest = &mut text[..];
        // Cannot fail: the array holds the longest numbers.
        let written = match range {
            Some(ByteRange { first, last }) => write!(rest, "bytes {first}-{last}/{size_bytes}"),
            None => write!(rest, "bytes */{size_bytes}"),
        };
        debug_assert!(written.is_ok());
        let len = CONTENT_RANGE_BYTES_MAX - rest.len();
        Self { text, len }
    }

    fn value(&self) -> FieldValue<'_> {
        FieldValue::known(&self.text[..self.len])
    }
}

const FIELDS_MAX: usize = 7;
const BYTES: FieldValue<'_> = FieldValue::from_static("bytes");
const NOSNIFF: FieldValue<'_> = FieldValue::from_static("nosniff");

/// The fields of a response with a file, on the stack.
struct Fields<'a> {
    fields: [Field<'a>; FIELDS_MAX],
    len: usize,
}

impl<'a> Fields<'a> {
    fn of(head: &'a FileHead<'_>, cache_control: Option<FieldValue<'a>>) -> Self {
        let mut fields = Self {
            fields: [(FieldName::CONTENT_TYPE, FieldValue::EMPTY); FIELDS_MAX],
            len: 0,
        };
        fields.push(FieldName::CONTENT_TYPE, head.media_type);
        fields.push(FieldName::ETAG, FieldValue::known(head.validators.tag()));
        let date = FieldValue::known(head.validators.date());
        fields.push(FieldName::LAST_MODIFIED, date);
        fields.push(FieldName::ACCEPT_RANGES, BYTES);
        fields.push(FieldName::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        if let Some(value) = cache_control {
            fields.push(FieldName::CACHE_CONTROL, value);
        }
        fields
    }

    fn push(&mut self, name: FieldName<'a>, value: FieldValue<'a>) {
        self.fields[self.len] = (name, value);
        self.len += 1;
    }

    fn as_slice(&self) -> &[Field<'a>] {
        &self.fields[..self.len]
    }
}

impl Files {
    /// Responds out of the cache.
    #[inline]
    pub(super) fn answer_cached<'f>(
        &self,
        place: usize,
        question: &Question<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        response: &mut Response<'_>,
    ) -> Flow {
        let file = self.cache.file(place);
        let head = FileHead {
            validators: &file.validators,
            media_type: file.media_type,
            size_bytes: file.version.size_bytes,
        };
        let now_s = || seconds_since_epoch(SystemTime::now());
        let selection = select(
            fields,
            head.validators,
            head.size_bytes,
            question.is_get,
            now_s,
        );
        // Without memory nothing is sent, and the server responds with 503.
        let (body, sent) = match selection {
            Selection::Whole => {
                let body = &*file.body;
                let fields = self.fields(&head);
                let sent = response.send_with(StatusCode::OK, fields.as_slice(), body);
                (body, sent)
            }
            Selection::Part(range) => {
                let body = &file.body[range.first as usize..=range.last as usize];
                let text = RangeText::of(Some(range), head.size_bytes);
                let mut fields = self.fields(&head);
                fields.push(FieldName::CONTENT_RANGE, text.value());
                self.counters().partial.add(1);
                let status = StatusCode::PARTIAL_CONTENT;
                (body, response.send_with(status, fields.as_slice(), body))
            }
            other => return self.answer_without_file(other, &head, response),
        };
        if sent.is_ok() && question.is_get {
            self.counters().body_bytes.add(body.len() as u64);
        }
        Flow::Done
    }

    fn fields<'a>(&'a self, head: &'a FileHead<'_>) -> Fields<'a> {
        Fields::of(head, self.site.cache_control())
    }

    /// 304, 412 and 416.
    fn answer_without_file(
        &self,
        selection: Selection,
        head: &FileHead<'_>,
        response: &mut Response<'_>,
    ) -> Flow {
        let text = RangeText::of(None, head.size_bytes);
        // Without memory nothing is sent, and the server responds with 503.
        let _ = match selection {
            Selection::NotModified => {
                self.counters().not_modified.add(1);
                let tag = (FieldName::ETAG, FieldValue::known(head.validators.tag()));
                match self.site.cache_control() {
                    Some(value) => {
                        let fields = [tag, (FieldName::CACHE_CONTROL, value)];
                        response.send_with(StatusCode::NOT_MODIFIED, &fields, b"")
                    }
                    None => response.send_with(StatusCode::NOT_MODIFIED, &[tag], b""),
                }
            }
            Selection::Unsatisfiable => response.send_with(
                StatusCode::RANGE_NOT_SATISFIABLE,
                &[
                    (FieldName::CONTENT_TYPE, FieldValue::TEXT_PLAIN),
                    (FieldName::CONTENT_RANGE, text.value()),
                ],
                b"the range begins behind the end of the file\n",
            ),
            _ => response.send(
                StatusCode::PRECONDITION_FAILED,
                TEXT_PLAIN,
                b"the file is not the one the request is about\n",
            ),
        };
        Flow::Done
    }

    /// Responds to a request whose name was resolved.
    pub(super) fn answer_opened<'f>(
        &mut self,
        question: &Question<'_>,
        opened: Result<Opened, OpenRefusal>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        response: &mut Response<'_>,
        place: &SendContext<'_>,
    ) -> Todo {
        self.counters().cache_misses.add(1);
        let relative = question.file.relative;
        let (file, version) = match opened {
            Ok(Opened::File(file, version)) => (file, version),
            Ok(Opened::Directory) if !question.file.is_index => {
                self.forget_cached(relative);
                redirect_to_directory(question, response, place.blocks);
                return Todo::Nothing;
            }
            Ok(Opened::Directory) => {
                self.forget_cached(relative);
                refuse_open(OpenRefusal::NotFound, response);
                return Todo::Nothing;
            }
            Err(refusal) => {
                self.forget_cached(relative);
                refuse_open(refusal, response);
                return Todo::Nothing;
            }
        };
        let now = SystemTime::now();
        if let Some(cached) = self.cache_file(relative, &file, version, now, place) {
            self.answer_cached(cached, question, fields, response);
            return Todo::Nothing;
        }
        let head = FileHead {
            validators: &Validators::new(&version, now),
            media_type: path::media_type(relative),
            size_bytes: version.size_bytes,
        };
        self.answer_from_file(file, &head, question, fields, now, response)
    }

    fn forget_cached(&mut self, relative: &[u8]) {
        self.cache.remove(relative);
        self.count_cache(0);
    }

    fn count_cache(&self, evicted_count: u64) {
        let counters = self.counters();
        counters.cache_evictions.add(evicted_count);
        counters.cache_entries.set(self.cache.len() as u64);
        counters.cache_bytes.set(self.cache.bytes() as u64);
    }

    /// Where the file is in the cache: because it still is as it was there, or because it is small,
    /// settled and in the kernel's memory.
    fn cache_file(
        &mut self,
        relative: &[u8],
        file: &OwnedFd,
        version: Version,
        now: SystemTime,
        place: &SendContext<'_>,
    ) -> Option<usize> {
        if let Some(cached) = self.cache.place_of(relative) {
            if self.cache.file(cached).version == version {
                self.cache.refresh(cached, place.now_ns);
                return Some(cached);
            }
            self.forget_cached(relative);
        }
        if !self.cache.takes(version.size_bytes) || !version.is_settled(now) {
            return None;
        }
        let room = self.scratch.get_mut(..version.size_bytes as usize)?;
        let mut filled_bytes = 0;
        while filled_bytes < room.len() {
            match read_cached(file, &mut room[filled_bytes..], filled_bytes as u64) {
                Ok(0) => return None,
                Ok(count) => filled_bytes += count,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        // The bytes read belong to that version only if the file still has it.
        if Version::of(&fstat(file).ok()?) != version {
            return None;
        }
        let mut body = Buffer::new();
        body.extend_from_slice(place.blocks, room).ok()?;
        let cached = CachedFile {
            version,
            validators: Validators::new(&version, now),
            media_type: path::media_type(relative),
            body,
        };
        let (cached, evicted_count) = self.cache.insert(relative, cached, place.now_ns)?;
        self.count_cache(evicted_count);
        Some(cached)
    }

    /// Responds out of an open file: the head, and as much of the body as is in memory.
    fn answer_from_file<'f>(
        &mut self,
        file: OwnedFd,
        head: &FileHead<'_>,
        question: &Question<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        now: SystemTime,
        response: &mut Response<'_>,
    ) -> Todo {
        let now_s = || seconds_since_epoch(now);
        let size_bytes = head.size_bytes;
        let selection = select(fields, head.validators, size_bytes, question.is_get, now_s);
        let range = match selection {
            Selection::Whole => None,
            Selection::Part(range) => Some(range),
            other => {
                self.answer_without_file(other, head, response);
                return Todo::Nothing;
            }
        };
        let text = RangeText::of(range, size_bytes);
        let mut fields = self.fields(head);
        let (status, start, length) = match range {
            None => (StatusCode::OK, 0, size_bytes),
            Some(range) => {
                fields.push(FieldName::CONTENT_RANGE, text.value());
                self.counters().partial.add(1);
                (StatusCode::PARTIAL_CONTENT, range.first, range.len_bytes())
            }
        };
        let started = response.start(status, fields.as_slice(), BodyLength::Known(length));
        if started.is_err() || !question.is_get {
            return Todo::Nothing;
        }
        let transfer = Transfer {
            file: Some(file),
            at: start,
            end: start + length,
        };
        self.continue_sending(transfer, None, response)
    }

    /// Writes the available bytes; `read` are those from the disk thread.
    pub(super) fn continue_sending(
        &mut self,
        mut transfer: Transfer,
        read: Option<Result<Buffer, Errno>>,
        response: &mut Response<'_>,
    ) -> Todo {
        let before = transfer.at;
        let is_intact = match read {
            None => true,
            // Nothing read where something was announced: the file shrank.
            Some(Ok(bytes)) => !bytes.is_empty() && transfer.write(&bytes, response),
            Some(Err(_)) => false,
        };
        let step = match is_intact {
            true => transfer.advance(response, &mut self.scratch),
            false => TransferStep::Broken,
        };
        self.counters().body_bytes.add(transfer.at - before);
        match step {
            TransferStep::Complete => Todo::Nothing,
            TransferStep::Broken => {
                self.counters().transfers_aborted.add(1);
                Todo::Nothing
            }
            TransferStep::NeedsRoom | TransferStep::NeedsDisk => Todo::Send(transfer, step),
        }
    }

    /// Stores the remaining work, and returns the event to wait for. A response that cannot go on is cut.
    pub(super) fn go_on(
        &mut self,
        todo: Todo,
        token: RequestToken,
        state: &mut u64,
        blocks: &BlockPool,
    ) -> Flow {
        let Todo::Send(mut transfer, step) = todo else {
            return Flow::Done;
        };
        let work = match step {
            TransferStep::NeedsDisk => match read_from_disk(&mut transfer, blocks) {
                Some(work) => Some(work),
                None => return Flow::Done,
            },
            _ => None,
        };
        let task = FileTask::Sending {
            transfer,
            read: None,
        };
        if !self.keep(task, state) {
            return Flow::Done;
        }
        let Some(work) = work else {
            return Flow::Stream(Interest::ROOM);
        };
        self.counters().cold_reads.add(1);
        self.hand_over(work, token, *state)
    }

    /// Has the disk thread open the file.
    pub(super) fn open_from_disk(
        &mut self,
        relative: &[u8],
        question: KeptQuestion,
        token: RequestToken,
        state: &mut u64,
        blocks: &BlockPool,
    ) -> Flow {
        let mut name = Buffer::new();
        let task = FileTask::Opening {
            question,
            outcome: None,
        };
        if name.extend_from_slice(blocks, relative).is_err() || !self.keep(task, state) {
            return Flow::Done;
        }
        self.counters().cold_opens.add(1);
        let root = Arc::clone(&self.root);
        self.hand_over(Work::Open { root, name }, token, *state)
    }

    fn keep(&mut self, task: FileTask, state: &mut u64) -> bool {
        let Ok(handle) = self.tasks.insert(task) else {
            return false;
        };
        *state = handle.to_bits();
        self.counters().transfers.set(self.tasks.len() as u64);
        true
    }

    fn hand_over(&mut self, work: Work, token: RequestToken, state: u64) -> Flow {
        if self.disk.submit(token, state, work) {
            return Flow::Pending;
        }
        self.forget(state);
        Flow::Done
    }
}

/// The next part as work for the disk thread, which gets the file for so long.
fn read_from_disk(transfer: &mut Transfer, blocks: &BlockPool) -> Option<Work> {
    let part_bytes = (transfer.end - transfer.at).min(super::PART_BYTES as u64) as usize;
    let buffer = Buffer::with_capacity(blocks, part_bytes).ok()?;
    Some(Work::Read {
        file: transfer.file.take()?,
        offset: transfer.at,
        bytes_max: part_bytes,
        buffer,
    })
}

// A file on its way: its next bytes from the kernel's memory to the client.
//
// ```text
// head, first block   read, written into the response                    one send for both
// the rest            straight from the file to the socket             in memory, and the client reads
//                     read and written, a block at a time              the client is slow, or TLS
//                     read by the disk thread                          not in memory
// ```
// Memory per transfer is the connection's output, one block of 32 KiB, and another while the disk thread reads.
// `preadv2` with `RWF_NOWAIT` reads from the page cache; other bytes come from the disk thread, so no shard waits for a
// disk.

/// The most that is read at once.
pub(super) const PART_BYTES: usize = 32 * 1024;

/// The most that goes straight to the socket in one turn: some ten microseconds.
const FILE_TURN_BYTES: u64 = 128 * 1024;

/// Less room than this is not worth a read, unless it is enough.
const ROOM_BYTES_MIN: usize = 4 * 1024;

/// Which bytes of which file are still to be sent. Without a file the disk thread has it.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) file: Option<OwnedFd>,
    pub(super) at: u64,
    pub(super) end: u64,
}

/// How far a transfer came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TransferStep {
    /// All bytes are written.
    Complete,
    /// The output is full.
    NeedsRoom,
    /// The next bytes are on the disk.
    NeedsDisk,
    /// The file is shorter than announced, unreadable, or there is no memory: the response cannot be
    /// completed.
    Broken,
}

impl Transfer {
    /// Writes as much as there is room for and memory holds.
    pub(super) fn advance(
        &mut self,
        response: &mut Response<'_>,
        scratch: &mut [u8],
    ) -> TransferStep {
        let turn_bytes = FILE_TURN_BYTES.min(self.end - self.at);
        if self.send_file(response, turn_bytes) == turn_bytes {
            return match self.at == self.end {
                true => TransferStep::Complete,
                false => TransferStep::NeedsRoom,
            };
        }
        self.write_parts(response, scratch)
    }

    /// Sends up to so many bytes past the response, as far as that is possible; the last ones are left
    /// for the usual way if they fit into one part.
    fn send_file(&mut self, response: &mut Response<'_>, turn_bytes: u64) -> u64 {
        let Some(file) = self
            .file
            .as_ref()
            .filter(|_| turn_bytes > PART_BYTES as u64)
        else {
            return 0;
        };
        let sent_bytes = response.send_file(file.as_fd(), self.at..self.at + turn_bytes);
        self.at += sent_bytes;
        sent_bytes
    }

    fn write_parts(&mut self, response: &mut Response<'_>, scratch: &mut [u8]) -> TransferStep {
        loop {
            let left_bytes = self.end - self.at;
            let part_bytes = left_bytes
                .min(response.room_bytes() as u64)
                .min(scratch.len() as u64) as usize;
            if left_bytes == 0 {
                return TransferStep::Complete;
            }
            if part_bytes < ROOM_BYTES_MIN && (part_bytes as u64) < left_bytes {
                return TransferStep::NeedsRoom;
            }
            let Some(file) = &self.file else {
                return TransferStep::Broken;
            };
            match read_cached(file, &mut scratch[..part_bytes], self.at) {
                Ok(0) => return TransferStep::Broken,
                Ok(count) => {
                    if !self.write(&scratch[..count], response) {
                        return TransferStep::Broken;
                    }
                }
                // The others: a file system, an emulator or an old kernel without this information.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return TransferStep::NeedsDisk;
                }
                Err(Errno::INTR) => {}
                Err(_) => return TransferStep::Broken,
            }
        }
    }

    /// Writes the next bytes. False: the response cannot be completed.
    pub(super) fn write(&mut self, bytes: &[u8], response: &mut Response<'_>) -> bool {
        self.at += bytes.len() as u64;
        response.write(bytes).is_ok()
    }
}

/// File systems that are memory: their kernel code does not support `RWF_NOWAIT`, and never waits (but for what was
/// swapped out).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Reads bytes that are in memory; `EAGAIN` when the first byte is not, `EOPNOTSUPP` or `ENOSYS` where this is unknown.
pub(super) fn read_cached(file: impl AsFd, room: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let file = file.as_fd();
    let read = preadv2(
        file,
        &mut [IoSliceMut::new(room)],
        offset,
        ReadWriteFlags::NOWAIT,
    );
    match read {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if is_memory(file) => pread(file, room, offset),
        read => read,
    }
}

fn is_memory(file: BorrowedFd<'_>) -> bool {
    // The width of the magic number depends on the platform.
    fstatfs(file).is_ok_and(|system| matches!(system.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC))
}

#[cfg(test)]
#[path = "tests/transfer.rs"]
mod transfer_tests;
