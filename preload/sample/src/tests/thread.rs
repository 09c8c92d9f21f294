use super::*;

/// Goal: every thread has a block of its own that begins with zeros and stays where it is.
#[test]
fn blocks_are_the_threads_own() {
    let look = || {
        let block = own();
        // SAFETY: the block is this thread's.
        let before = unsafe { (*block).busy };
        // SAFETY: as above.
        unsafe { (*block).busy = 7 };
        assert_eq!((before, own()), (0, block));
        block as usize
    };
    let here = look();
    let there = std::thread::spawn(look).join().unwrap();
    assert_ne!(here, there);
}
