use super::*;

/// Goal: the answer in clear text is as long as it says.
#[test]
fn the_answer_in_clear_text_is_whole() {
    let text = std::str::from_utf8(CLEAR_TEXT_ANSWER).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{}",
        body.len()
    );
}
