use super::*;

/// Goal: in this very process, where nothing is preloaded, every call ends in the C library.
#[test]
fn own_calls_end_in_the_c_library() {
    let own = i32::try_from(std::process::id()).unwrap();
    let image = Image::open(own).unwrap();
    let calls = Slots::default().calls(&image);
    for function in FAMILY {
        assert!(
            calls.iter().any(|call| call.function == *function),
            "{function}: {calls:?}"
        );
    }
    assert!(calls.iter().all(|call| is_c_library(&call.to)), "{calls:?}");
}
