use super::*;

/// Goal: addresses are written as they are.
#[test]
fn addresses_in_hexadecimal() {
    let mut digits = [0; 16];
    assert_eq!(hexadecimal(0, &mut digits), b"0");
    assert_eq!(hexadecimal(0x7f00_dead_beef, &mut digits), b"7f00deadbeef");
    assert_eq!(hexadecimal(usize::MAX, &mut digits), b"ffffffffffffffff");
}
