use super::*;

/// Goal: numbers as protocol buffers' own documentation has them.
#[test]
fn wire_format() {
    let mut message = Message::default();
    message.number(1, 150);
    message.bytes(2, b"testing");
    message.packed(6, &[3, 270, 86_942]);
    message.number(7, 0);
    let expected = [
        &[0x08, 0x96, 0x01, 0x12, 0x07][..],
        b"testing",
        &[0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05],
    ];
    assert_eq!(message.0, expected.concat());
}
