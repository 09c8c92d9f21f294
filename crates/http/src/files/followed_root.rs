//! The directory that is served, looked up again by its name every second.
//!
//! A release that is switched by a link, and a directory that is made anew, are served from then on; while the
//! name leads nowhere the last directory stays. Shards compare a number with each request and take the new
//! directory when it has changed: no lock is held, no name is looked up there.

use super::root::Root;
use crate::log::{self, LogLevel};
use crate::thread_panics::{self, HelperThread};
use rustix::fs::{Stat, fstat};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How old the answer may be where the name leads.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What is shared by the shards and the thread that looks.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    follows_links: bool,
    current: Mutex<Arc<Root>>,
    /// Grows when `current` changes.
    generation: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FollowedRoot {
    shared: Arc<Shared>,
    /// The thread ends when this is dropped.
    _stop: Option<Sender<()>>,
}

impl FollowedRoot {
    /// Follows the name from now on; `is_pinned`: whatever it leads to now stays.
    pub(super) fn start(
        root: Root,
        path: &Path,
        follows_links: bool,
        is_pinned: bool,
    ) -> Result<Self, std::io::Error> {
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            follows_links,
            current: Mutex::new(Arc::new(root)),
            generation: AtomicU64::new(0),
        });
        if is_pinned {
            return Ok(Self {
                shared,
                _stop: None,
            });
        }
        let (stop, stopped) = channel();
        let for_thread = Arc::clone(&shared);
        Builder::new()
            .name("files-root".to_owned())
            .spawn(move || follow(&for_thread, &stopped))?;
        Ok(Self {
            shared,
            _stop: Some(stop),
        })
    }

    /// Which directory it is now: a number for [`Self::current`].
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> Arc<Root> {
        Arc::clone(
            &self
                .shared
                .current
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

fn follow(shared: &Shared, stopped: &Receiver<()>) {
    while stopped.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        thread_panics::catch(HelperThread::FilesDisk, || shared.look());
    }
}

impl Shared {
    fn look(&self) {
        let Ok(found) = Root::open(&self.path, self.follows_links) else {
            return;
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // The one that is held keeps its inode from being given to another.
        let identity = |root: &Root| {
            let stat = fstat(root.directory());
            stat.map(|Stat { st_dev, st_ino, .. }| (st_dev, st_ino))
        };
        if identity(&found) == identity(&current) {
            return;
        }
        *current = Arc::new(found);
        self.generation.fetch_add(1, Ordering::Release);
        log::write(
            LogLevel::Info,
            format_args!(
                "{} leads to another directory, which is served now",
                self.path.display()
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::root::{OpenRefusal, Opened, Patience};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn has(root: &FollowedRoot, name: &str) -> bool {
        match root.current().look_up(name.as_bytes(), Patience::Disk) {
            Ok(Opened::File(..)) => true,
            Err(OpenRefusal::NotFound) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Goal: a link that is switched, a directory that is made anew, and a name that leads nowhere for a while
    /// are what they should be at the next look, and a pinned root stays.
    #[test]
    fn the_name_is_followed() {
        let home = tempfile::tempdir().unwrap();
        let (one, two) = (home.path().join("1"), home.path().join("2"));
        for directory in [&one, &two] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join(directory.file_name().unwrap()), "").unwrap();
        }
        let name = home.path().join("now");
        symlink(&one, &name).unwrap();
        let open = |is_pinned| {
            let root = Root::open(&name, true).unwrap();
            FollowedRoot::start(root, &name, true, is_pinned).unwrap()
        };
        let (followed, pinned) = (open(false), open(true));
        let look = || followed.shared.look();
        look();
        assert!((has(&followed, "1"), followed.generation()) == (true, 0));
        let next = home.path().join("next");
        symlink(&two, &next).unwrap();
        fs::rename(&next, &name).unwrap();
        look();
        assert!(has(&followed, "2") && !has(&followed, "1") && followed.generation() > 0);
        fs::remove_file(&name).unwrap();
        look();
        assert!(has(&followed, "2"), "the last one stays");
        fs::create_dir(&name).unwrap();
        fs::write(name.join("3"), "").unwrap();
        look();
        assert!(has(&followed, "3"));
        fs::remove_dir_all(&name).unwrap();
        fs::create_dir(&name).unwrap();
        fs::write(name.join("4"), "").unwrap();
        look();
        assert!(has(&followed, "4"), "an inode is not taken for another");
        assert!(has(&pinned, "1") && pinned.generation() == 0);
    }
}
