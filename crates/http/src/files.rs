//! The files of a directory as a [`Service`]: what `millpond serve files` runs.
//!
//! In the order of the `mod` lines: the target's path becomes a plain name, which is found in the cache of small files
//! or opened beneath the root; preconditions and range select the bytes to send; a small file goes into the cache, a
//! larger one is sent block by block as the client takes it. Reads that are not in memory go to the disk thread.
//!
//! It serves regular files that the process may read, beneath the directory. The response for a directory is its
//! `index.html`; without one it does not exist. Names that begin with a dot are hidden, except `/.well-known/` (RFC
//! 8615). Links are followed while they stay beneath the directory, where the kernel has `openat2`. A file that shrinks
//! while it is sent ends its connection: the announced length is never padded.

mod path;
mod selection;
mod cache;
mod answer;

use crate::completions::Completions;
use crate::head_text::FieldValue;
use crate::method::Method;
use crate::metrics::MetricsText;
use crate::request::Request;
use crate::response::Response;
use crate::service::{Flow, RequestToken, Service, ServiceContext, ShardStart, StreamEvent};
use answer::{PART_BYTES, Transfer};
use cache::FileCounters;
use cache::{Cache, Known};
use millpond_io::Errno;
use millpond_mempool::{Buffer, Handle, PoolStats, Slab};
use path::FilePath;
use path::FollowedRoot;
use path::{Answer, Disk, DiskResult};
use path::{OpenRefusal, Opened, Patience, Root, Way};
use selection::{KeptQuestion, Question};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of the file server.
#[derive(Clone, Debug)]
pub struct FilesConfig {
    /// The directory.
    pub directory: PathBuf,
    /// Follow symbolic links that stay beneath the directory. Otherwise, and without `openat2` in the kernel, no link
    /// is followed: each part of a name is then opened by itself, on the disk thread.
    pub follow_links: bool,
    /// Memory for small files, each shard; 0 for none.
    pub cache_bytes: usize,
    /// The directory is looked up again by its name every second; otherwise the directory found at the start is served
    /// until the end.
    pub follow_root: bool,
    /// The value of `Cache-Control` in every response with a file, e.g. `max-age=60`.
    pub cache_control: Option<String>,
}

impl FilesConfig {
    /// Links and the root followed, 16 MiB of cache for each shard and no `Cache-Control`.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            follow_links: true,
            follow_root: true,
            cache_bytes: 16 << 20,
            cache_control: None,
        }
    }
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// Missing, no directory, or not to be entered.
    #[error("cannot serve the directory {}: {error}", directory.display())]
    Directory {
        /// The configured value.
        directory: PathBuf,
        /// The system's error.
        error: Errno,
    },
    /// No value of a field.
    #[error("\"{value}\" cannot stand in Cache-Control: write e.g. max-age=60")]
    CacheControl {
        /// The configured value.
        value: String,
    },
    /// No thread to wait for the disk.
    #[error("cannot start a thread that reads files: {0}; use fewer shards")]
    Thread(#[from] std::io::Error),
}

/// A directory that is open, for all shards.
#[derive(Debug)]
pub struct Site {
    root: FollowedRoot,
    cache_bytes: usize,
    cache_control: Option<String>,
    /// One for each shard.
    counters: Vec<FileCounters>,
}

impl Site {
    /// Opens the directory, and starts the thread that resolves its name again.
    pub fn open(config: &FilesConfig, shards: usize) -> Result<Self, FilesError> {
        let directory = &config.directory;
        let root =
            Root::open(directory, config.follow_links).map_err(|error| FilesError::Directory {
                directory: directory.clone(),
                error,
            })?;
        let is_pinned = !config.follow_root;
        let root = FollowedRoot::start(root, directory, config.follow_links, is_pinned)?;
        if let Some(value) = &config.cache_control
            && (value.is_empty() || FieldValue::new(value).is_err())
        {
            let value = value.clone();
            return Err(FilesError::CacheControl { value });
        }
        Ok(Self {
            root,
            cache_bytes: config.cache_bytes,
            cache_control: config.cache_control.clone(),
            counters: (0..shards).map(|_| FileCounters::default()).collect(),
        })
    }

    /// `Cache-Control` of every response with a file.
    fn cache_control(&self) -> Option<FieldValue<'_>> {
        let value = self.cache_control.as_deref()?;
        // Checked when the site was opened.
        Some(FieldValue::known(value.as_bytes()))
    }

    /// Whether links beneath the directory are followed: configured, and the kernel has `openat2`.
    #[must_use]
    pub fn follows_links(&self) -> bool {
        self.root.current().way() == Way::Beneath
    }
}

/// A request between two calls.
#[derive(Debug)]
enum FileTask {
    /// Its file is being opened.
    Opening {
        question: KeptQuestion,
        outcome: Option<Result<Opened, OpenRefusal>>,
    },
    /// Its file is being sent.
    Sending {
        transfer: Transfer,
        read: Option<Result<Buffer, Errno>>,
    },
}

/// The service of one shard.
pub struct Files {
    site: Arc<Site>,
    /// The directory that is served, and which one that is.
    root: Arc<Root>,
    root_generation: u64,
    shard_index: usize,
    cache: Cache,
    tasks: Slab<FileTask>,
    disk: Disk,
    /// Responses of the disk thread, between taking and using them.
    answers: Vec<Answer>,
    /// Where files are read to before they are written into a response.
    scratch: Box<[u8]>,
}

impl fmt::Debug for Files {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Files")
            .field("shard_index", &self.shard_index)
            .finish_non_exhaustive()
    }
}

impl Files {
    /// The files of a shard; starts its disk thread.
    pub fn new(site: &Arc<Site>, start: &ShardStart) -> Result<Self, FilesError> {
        let disk = Disk::start(start.index, start.waker.clone())?;
        // Before the directory: at worst it is taken twice.
        let root_generation = site.root.generation();
        Ok(Self {
            site: Arc::clone(site),
            root: site.root.current(),
            root_generation,
            shard_index: start.index,
            cache: Cache::new(site.cache_bytes),
            tasks: Slab::new("files_tasks", start.pool_mode),
            disk,
            answers: Vec::new(),
            scratch: vec![0; PART_BYTES].into(),
        })
    }

    #[inline]
    fn counters(&self) -> &FileCounters {
        &self.site.counters[self.shard_index]
    }

    /// Takes the directory to which the name leads now, if it has changed. Cached files are compared with it by name,
    /// as in every check.
    #[inline]
    fn look_for_root(&mut self) {
        let generation = self.site.root.generation();
        if generation != self.root_generation {
            self.root_generation = generation;
            self.root = self.site.root.current();
        }
    }

    fn forget(&mut self, state: u64) -> Option<FileTask> {
        let task = self.tasks.remove(Handle::from_bits(state));
        self.counters().transfers.set(self.tasks.len() as u64);
        task
    }
}

impl Service for Files {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        if !matches!(request.method, Method::Get | Method::Head) {
            return selection::refuse_method(request.method, response);
        }
        let file = match FilePath::decode(request.path(), &context.pools.arena) {
            Ok(file) => file,
            Err(refusal) => return selection::refuse_path(refusal, response),
        };
        self.look_for_root();
        let question = Question::new(file, request);
        let known = self.cache.find(file.relative, context.now_ns);
        if let Known::Fresh(place) = known {
            self.counters().cache_hits.add(1);
            return self.answer_cached(place, &question, request.headers(), response);
        }
        match self.root.look_up(file.relative, Patience::CachedOnly) {
            Err(OpenRefusal::NotCached) => {}
            opened => {
                let (blocks, now_ns) = (&context.pools.blocks, context.now_ns);
                let place = answer::SendContext { blocks, now_ns };
                let todo =
                    self.answer_opened(&question, opened, request.headers(), response, &place);
                return self.go_on(todo, context.token, &mut context.state, place.blocks);
            }
        }
        let blocks = &context.pools.blocks;
        let Ok(kept) = KeptQuestion::keep(&question, request, blocks) else {
            return Flow::Done;
        };
        self.open_from_disk(
            file.relative,
            kept,
            context.token,
            &mut context.state,
            blocks,
        )
    }

    /// Bodies are of no use here: without this each connection could have the server keep one of up
    /// to `body_bytes_max`.
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        true
    }

    fn stream(
        &mut self,
        _event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let Some(task) = self.forget(context.state) else {
            return Flow::Done;
        };
        let (blocks, now_ns) = (&context.pools.blocks, context.now_ns);
        let todo = match task {
            FileTask::Opening { question, outcome } => {
                let opened = outcome.unwrap_or(Err(OpenRefusal::Failed));
                let place = answer::SendContext { blocks, now_ns };
                let asked = question.question();
                self.answer_opened(&asked, opened, question.fields(), response, &place)
            }
            FileTask::Sending { transfer, read } => self.continue_sending(transfer, read, response),
        };
        self.go_on(todo, context.token, &mut context.state, blocks)
    }

    fn abandoned(&mut self, _token: RequestToken, state: u64) {
        self.forget(state);
    }

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
        let mut answers = std::mem::take(&mut self.answers);
        self.disk.drain_into(&mut answers);
        for answer in answers.drain(..) {
            // A request that was cancelled has no task: the bytes read for it are dropped.
            let Some(task) = self.tasks.get_mut(Handle::from_bits(answer.state)) else {
                continue;
            };
            match (task, answer.outcome) {
                (FileTask::Opening { outcome, .. }, DiskResult::Opened(opened)) => {
                    *outcome = Some(opened);
                }
                (FileTask::Sending { transfer, read }, DiskResult::Read { file, bytes }) => {
                    transfer.file = Some(file);
                    *read = Some(bytes);
                }
                // A state is never reused for another task, and a task waits for one kind of response.
                _ => continue,
            }
            completions.resume(answer.token);
        }
        self.answers = answers;
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.tasks.stats());
    }

    fn trim_pools(&mut self) -> usize {
        self.tasks.trim()
    }

    fn write_metrics(&self, out: &mut MetricsText<'_>) {
        cache::write_metrics(&self.site.counters, out);
    }
}
