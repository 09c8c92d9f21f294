use super::*;

/// Goal: the response in plaintext is as long as it says.
#[test]
fn the_response_in_plaintext_is_whole() {
    let text = std::str::from_utf8(PLAINTEXT_RESPONSE).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{}",
        body.len()
    );
}
