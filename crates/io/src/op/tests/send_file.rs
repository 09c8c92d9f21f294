use super::*;
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Goal: a range in memory goes out as it is in the file; one that reaches past the end of the
/// file, where no pages are, is left to the caller.
#[test]
fn what_is_in_memory_goes_out() {
    let mut file = tempfile::tempfile().unwrap();
    let bytes: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    file.write_all(&bytes).unwrap();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let mut reader = UnixStream::from(theirs);
    let range = 4_097..20_000;
    let Some(sent) = send_file_now(ours.as_fd(), file.as_fd(), &range) else {
        // An old kernel, a filter for system calls, or a file system without support.
        assert!(!is_cached(file.as_fd(), &range) || !is_harmless_to_gone_peers());
        return;
    };
    let mut got = vec![0; sent as usize];
    reader.read_exact(&mut got).unwrap();
    assert_eq!(got, bytes[4_097..4_097 + sent as usize]);
    let past = 150_000..1_000_000;
    assert_eq!(send_file_now(ours.as_fd(), file.as_fd(), &past), None);
    drop(reader);
    assert_eq!(send_file_now(ours.as_fd(), file.as_fd(), &range), None);
}
