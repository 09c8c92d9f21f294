use super::*;

/// Goal: the same responses are counted however the stream is cut, interim ones included; what
/// is none counts as 0.
#[test]
fn responses_are_counted_at_every_cut() {
    let stream = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello\
        HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
    let expected = BTreeMap::from([(100, 1), (200, 1), (304, 1), (408, 1)]);
    for cut in 0..stream.len() {
        let (mut answers, mut statuses) = (Answers::default(), BTreeMap::new());
        let (first, second) = stream.split_at(cut);
        answers.take(first, &mut statuses);
        answers.take(second, &mut statuses);
        assert_eq!(
            (&statuses, answers.is_inside()),
            (&expected, false),
            "cut at {cut}"
        );
    }
    let (mut answers, mut statuses) = (Answers::default(), BTreeMap::new());
    answers.take(b"HTTP/1.1 200 OK\r\n\r\nno length", &mut statuses);
    assert_eq!(statuses, BTreeMap::from([(0, 1)]));
}
