//! How many descriptors this process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, which takes no privilege; returns what it is then. `u64::MAX`: no
/// limit.
///
/// The usual soft limit is 1024, for the sake of programs that call `select`; whoever starts a server means the hard one
/// (systemd's documentation of `LimitNOFILE=`). Programs that this process starts later inherit it.
pub fn raise_descriptor_limit() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised,
        Err(_) => before,
    };
    now.current.unwrap_or(u64::MAX)
}
