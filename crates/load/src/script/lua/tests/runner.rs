use super::*;

#[test]
fn fields_come_as_received() {
    let head = b"HTTP/1.1 200 OK\r\nX-A:  b c \r\nempty:\r\nurl: http://x:1/\r\n\r\n";
    let fields: Vec<_> = fields_of(head).collect();
    let expected: [(&[u8], &[u8]); 3] =
        [(b"X-A", b"b c"), (b"empty", b""), (b"url", b"http://x:1/")];
    assert_eq!(fields, expected);
}
