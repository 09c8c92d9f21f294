//! The thread on which a shard's waiting for the disk is done.
//!
//! On the path: what the kernel cannot answer from memory at once (a name's directories, the next
//! bytes of a file) becomes a job here; the answer comes back through the shard's mailbox, and the
//! service goes on. Jobs own what they need, so a client that leaves costs nothing but the read.
//!
//! Absent on purpose: a bound on the queue. Each request has one job at most, and connections are
//! bounded. More than one thread: a disk so slow that reads must overlap is asked to read ahead.

use super::root::{OpenRefusal, Opened, Patience, Root};
use crate::service::RequestToken;
use crate::thread_panics::{self, HelperThread};
use millpond_io::{Mailbox, MailboxSender, Waker};
use millpond_mempool::{Buffer, flush_remote_frees};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// How far the kernel is asked to read ahead of a read that had to wait.
const READ_AHEAD_BYTES: u64 = 512 * 1024;

/// Something that may wait.
#[derive(Debug)]
pub(super) enum Work {
    /// Open the file of this name beneath this directory.
    Open { root: Arc<Root>, name: Buffer },
    /// Read so many bytes into the buffer; fewer at the end of the file.
    Read {
        file: OwnedFd,
        offset: u64,
        bytes_max: usize,
        buffer: Buffer,
    },
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    Opened(Result<Opened, OpenRefusal>),
    Read {
        file: OwnedFd,
        bytes: Result<Buffer, Errno>,
    },
}

#[derive(Debug)]
struct Job {
    token: RequestToken,
    state: u64,
    work: Work,
}

/// A job's answer, with the names it was given.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) token: RequestToken,
    pub(super) state: u64,
    pub(super) outcome: Outcome,
}

/// The shard's end.
pub(super) struct Disk {
    /// Taken when dropped, which ends the thread.
    jobs: Option<Sender<Job>>,
    answers: Mailbox<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    /// Starts the thread.
    pub(super) fn start(shard_index: usize, waker: Waker) -> Result<Self, std::io::Error> {
        let (jobs, queue) = channel();
        let (sender, answers) = Mailbox::new(usize::MAX, waker);
        let thread = Builder::new()
            .name(format!("files-{shard_index}-disk"))
            .spawn(move || work(&queue, &sender))?;
        Ok(Self {
            jobs: Some(jobs),
            answers,
            thread: Some(thread),
        })
    }

    /// Hands a job over. False: the thread is gone.
    pub(super) fn submit(&self, token: RequestToken, state: u64, work: Work) -> bool {
        let job = Job { token, state, work };
        self.jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Moves all answers into `answers`.
    pub(super) fn drain_into(&self, answers: &mut Vec<Answer>) {
        self.answers.drain_into(answers);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it is noted where it happens.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Receiver<Job>, answers: &MailboxSender<Answer>) {
    while let Ok(Job { token, state, work }) = queue.recv() {
        let outcome = match work {
            Work::Open { root, name } => {
                let look_up = || root.look_up(&name, Patience::Disk);
                let opened = thread_panics::catch(HelperThread::FilesDisk, look_up)
                    .unwrap_or(Err(OpenRefusal::Failed));
                drop(name);
                // Blocks of the shard freed here go home now, not with a batch that never fills.
                flush_remote_frees();
                Outcome::Opened(opened)
            }
            Work::Read {
                file,
                offset,
                bytes_max,
                buffer,
            } => {
                let read = || read(&file, offset, bytes_max, buffer);
                let bytes =
                    thread_panics::catch(HelperThread::FilesDisk, read).unwrap_or(Err(Errno::IO));
                Outcome::Read { file, bytes }
            }
        };
        let answer = Answer {
            token,
            state,
            outcome,
        };
        // The mailbox has no limit, and a shard that is gone needs no answer.
        let _ = answers.send(answer);
    }
}

fn read(
    file: &OwnedFd,
    offset: u64,
    bytes_max: usize,
    mut buffer: Buffer,
) -> Result<Buffer, Errno> {
    // Advice only: a file system without it reads as it can.
    let _ = fadvise(
        file,
        offset,
        NonZeroU64::new(READ_AHEAD_BYTES),
        Advice::WillNeed,
    );
    #[cfg(test)]
    assert!(offset != tests::PANIC_OFFSET, "planted panic");
    while buffer.len() < bytes_max {
        let at = offset + buffer.len() as u64;
        let left_bytes = bytes_max - buffer.len();
        let filled = buffer.fill_from(|room| {
            let (filled, _) = rustix::io::pread(file, &mut room[..left_bytes], at)?;
            Ok::<_, Errno>(filled)
        });
        match filled {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading from here on panics.
    pub(super) const PANIC_OFFSET: u64 = 1 << 40;

    use millpond_io::{Driver, EpollDriver};
    use millpond_mempool::{BlockPool, PoolMode};
    use std::time::{Duration, Instant};

    /// Goal: what is asked for comes back with its names: an open file, its bytes from the place asked
    /// for and no more than asked for, fewer at the end, and none behind it.
    #[test]
    fn work_comes_back_with_its_names() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("file"), "0123456789").unwrap();
        let root = Arc::new(Root::open(home.path(), true).unwrap());
        let driver = EpollDriver::new(PoolMode::On).unwrap();
        let disk = Disk::start(0, driver.waker()).unwrap();
        let blocks = BlockPool::new("test", PoolMode::On);
        let ask = |state: u64, work: Work| {
            assert!(disk.submit(RequestToken::from_bits(state + 1), state, work));
            let (begin, mut answers) = (Instant::now(), Vec::new());
            while answers.is_empty() {
                disk.drain_into(&mut answers);
                assert!(begin.elapsed() < Duration::from_secs(60), "no answer");
                std::thread::yield_now();
            }
            let answer = answers.remove(0);
            assert_eq!((answer.state, answer.token.to_bits()), (state, state + 1));
            answer.outcome
        };
        let mut name = Buffer::new();
        name.extend_from_slice(&blocks, b"file").unwrap();
        let Outcome::Opened(Ok(Opened::File(mut file, version))) =
            ask(1, Work::Open { root, name })
        else {
            panic!("not opened")
        };
        assert_eq!(version.size_bytes, 10);
        for (offset, bytes_max, expected) in [(2, 3, "234"), (8, 64, "89"), (10, 64, "")] {
            let work = Work::Read {
                file,
                offset,
                bytes_max,
                buffer: Buffer::with_capacity(&blocks, 64).unwrap(),
            };
            let Outcome::Read { file: again, bytes } = ask(offset, work) else {
                panic!("not read")
            };
            assert_eq!(&*bytes.unwrap(), expected.as_bytes());
            file = again;
        }
        for (offset, is_read) in [(PANIC_OFFSET, false), (0, true)] {
            let work = Work::Read {
                file,
                offset,
                bytes_max: 4,
                buffer: Buffer::with_capacity(&blocks, 64).unwrap(),
            };
            let Outcome::Read { file: again, bytes } = ask(offset, work) else {
                panic!("not read")
            };
            assert_eq!(bytes.is_ok(), is_read, "a panic fails its own job alone");
            file = again;
        }
        assert!(thread_panics::counts()[1].1 > 0);
    }
}
