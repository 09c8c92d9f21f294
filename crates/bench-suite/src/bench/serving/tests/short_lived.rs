use super::*;

const TEXT: &str = "Concurrency Level:      10000\nComplete requests:      500\n\
    Failed requests:        0\nRequests per second:    9416.64 [#/sec] (mean)\n\
    Percentage of the requests served within a certain time (ms)\n  50%   1033\n  \
    99%   1224\n 100%   1275 (longest request)\n";

/// Goal: the numbers are found, and refused or missing responses are not taken for a good run.
#[test]
fn the_text_of_ab_is_read() {
    let ab = Ab {
        failed: 0.0,
        requests_per_s: 9416.64,
        p99_ms: 1224.0,
    };
    assert_eq!(parse(TEXT, 500), Ok(ab));
    assert!(parse(TEXT, 501).unwrap_err().contains("not 501"));
    let refused = TEXT.replace("Requests per", "Non-2xx responses:      3\nRequests per");
    assert_eq!(parse(&refused, 500).unwrap().failed, 3.0);
    assert!(parse("", 1).is_err());
}
