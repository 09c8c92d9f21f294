use super::*;

/// Goal: ranges are read as the kernel writes them, and replies as the probe writes them.
#[test]
fn lines_are_read() {
    let line = "55d0c000-55d0e000 rw-p 00000000 00:00 0    [heap]";
    assert_eq!(range(line), Some((0x55d0_c000, 0x55d0_e000)));
    assert_eq!(range("nothing"), None);
    let said = "noise\n1048576 mapping\n64 heap\n";
    assert_eq!(read_answer(said, 1 << 20), Some(BlockOrigin::Mapping));
    assert_eq!(read_answer(said, 64), Some(BlockOrigin::Heap));
    assert_eq!(read_answer(said, 65), None);
    assert_eq!(place_of_block(usize::MAX), BlockOrigin::Unknown);
}
