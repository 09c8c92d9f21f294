use super::*;

/// Goal: a stack has the functions that called, and ends without the zero at its bottom.
#[test]
fn a_walk_goes_through_its_callers() {
    find();
    let mut stack = Stack::new();
    stack.take();
    assert!(stack.frames().len() > 3 && !stack.is_cut);
    assert!(stack.frames().iter().all(|&address| address > 4096));
}

/// Goal: memory that cannot be read ends a walk.
#[test]
fn unreadable_memory_is_none() {
    let pair = [1_usize, 2];
    assert_eq!(read_pair(pair.as_ptr() as usize), Some(pair));
    assert_eq!(read_pair(8), None);
    assert_eq!(read_pair(pair.as_ptr() as usize + 1), None);
}

/// Goal: depth without end is cut and said to be.
#[test]
fn deep_stacks_are_cut() {
    fn deeper(left: usize, stack: &mut Stack) {
        if left == 0 {
            stack.take();
        } else {
            deeper(left - 1, stack);
        }
        std::hint::black_box(left);
    }
    find();
    let mut stack = Stack::new();
    deeper(FRAMES_MAX * 2, &mut stack);
    assert!(stack.is_cut);
    assert_eq!(stack.frames().len(), FRAMES_MAX);
}
