//! Answers with files: heads with their fields, bodies out of the cache or a file.
//!
//! On the path: the service calls this with a name that is in the cache or was looked up; what is
//! not sent at once comes back as a [`Todo`], which waits as a task.
//! Absent on purpose: deciding which part is sent (`selection`).

use super::cache::CachedFile;
use super::disk::Work;
use super::question::{KeptQuestion, Question};
use super::refusal::{redirect_to_directory, refuse_open};
use super::root::{OpenRefusal, Opened};
use super::selection::{ByteRange, Selection, select};
use super::transfer::{Step, Transfer, read_cached};
use super::version::{Validators, Version, seconds_since_epoch};
use super::{Files, Task, media_type};
use crate::head_text::{Field, FieldName, FieldValue};
use crate::response::{BodyLength, Response};
use crate::service::{Flow, RequestToken, Wants};
use crate::status::StatusCode;
use millpond_mempool::{BlockPool, Buffer};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

const TEXT_PLAIN: Option<FieldValue<'_>> = Some(FieldValue::TEXT_PLAIN);

/// `bytes `, three numbers, two separators.
const CONTENT_RANGE_BYTES_MAX: usize = 6 + 3 * 20 + 2;

/// Where an answer is made.
pub(super) struct Place<'a> {
    pub(super) blocks: &'a BlockPool,
    pub(super) now_ns: u64,
}

/// What is left to do for a request.
pub(super) enum Todo {
    /// It is answered, or must be cut.
    Nothing,
    /// Its file is being sent.
    Send(Transfer, Step),
}

/// What a head says of a file.
struct FileHead<'a> {
    validators: &'a Validators,
    media_type: FieldValue<'static>,
    size_bytes: u64,
}

/// Field values that are made for one answer.
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

/// The fields of an answer with a file, on the stack.
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
    /// Answers out of the cache.
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
        // Without memory nothing is sent, which the server answers with 503.
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
        // Without memory nothing is sent, which the server answers with 503.
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

    /// Answers a question whose name was looked up.
    pub(super) fn answer_opened<'f>(
        &mut self,
        question: &Question<'_>,
        opened: Result<Opened, OpenRefusal>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        response: &mut Response<'_>,
        place: &Place<'_>,
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
            media_type: media_type::media_type(relative),
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
        place: &Place<'_>,
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
        // What was read is that version's only if it is that version still.
        if Version::of(&fstat(file).ok()?) != version {
            return None;
        }
        let mut body = Buffer::new();
        body.extend_from_slice(place.blocks, room).ok()?;
        let cached = CachedFile {
            version,
            validators: Validators::new(&version, now),
            media_type: media_type::media_type(relative),
            body,
        };
        let (cached, evicted_count) = self.cache.insert(relative, cached, place.now_ns)?;
        self.count_cache(evicted_count);
        Some(cached)
    }

    /// Answers out of an open file: the head, and as much of the body as is at hand.
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

    /// Writes what is at hand; `read` is what the disk thread brought.
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
            false => Step::Broken,
        };
        self.counters().body_bytes.add(transfer.at - before);
        match step {
            Step::Complete => Todo::Nothing,
            Step::Broken => {
                self.counters().cut.add(1);
                Todo::Nothing
            }
            Step::NeedsRoom | Step::NeedsDisk => Todo::Send(transfer, step),
        }
    }

    /// Keeps what is left to do, and says what it waits for. An answer that cannot go on is cut.
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
            Step::NeedsDisk => match read_from_disk(&mut transfer, blocks) {
                Some(work) => Some(work),
                None => return Flow::Done,
            },
            _ => None,
        };
        let task = Task::Sending {
            transfer,
            read: None,
        };
        if !self.keep(task, state) {
            return Flow::Done;
        }
        let Some(work) = work else {
            return Flow::Stream(Wants::ROOM);
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
        let task = Task::Opening {
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

    fn keep(&mut self, task: Task, state: &mut u64) -> bool {
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
