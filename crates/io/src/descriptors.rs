//! How many descriptors this process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, which takes no privilege.
///
/// The usual soft limit is 1024, for the sake of programs that call `select`; a server is meant to have the hard one
/// (systemd's documentation of `LimitNOFILE=`). Programs that this process starts later inherit it. Where the kernel
/// refuses, the limit stays as it is.
pub fn raise_descriptor_limit() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    let _ = setrlimit(Resource::Nofile, raised);
}
