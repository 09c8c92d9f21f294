use super::*;

/// Every part of a file on tmpfs went through the disk thread, and its small files were never
/// cached: the kernel refuses `RWF_NOWAIT` there. Goal: they are read at once.
#[test]
fn files_in_memory_are_read_at_once() {
    let Ok(memory) = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC) else {
        // A sandbox without memfd; where it is, it lies on a tmpfs of the kernel's own.
        return;
    };
    assert_eq!(rustix::io::write(&memory, b"0123456789"), Ok(10));
    let mut room = [0; 4];
    assert_eq!(read_cached(&memory, &mut room, 3), Ok(4));
    assert_eq!(&room, b"3456");
    assert_eq!(read_cached(&memory, &mut room, 8), Ok(2));
    assert_eq!(read_cached(&memory, &mut room, 10), Ok(0));
}
