use super::*;

const TEXT: &str = "Running 4s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n\
    \x20 Thread Stats   Avg      Stdev     Max   +/- Stdev\n\
    \x20   Latency   612.50us  105.92us   6.78ms   90.11%\n\
    \x20 415893 requests in 4.00s, 51.96MB read\nRequests/sec: 103905.97\nTransfer/sec: 12.98MB\n";

/// Goal: the two numbers are found, and a run with errors is refused.
#[test]
fn the_text_of_wrk_is_read() {
    let answers = Answers {
        requests: 415_893,
        requests_per_s: 103_905.97,
    };
    assert_eq!(parse(TEXT), Ok(answers));
    assert!(parse("").is_err());
    let failed = format!("{TEXT}  Non-2xx or 3xx responses: 3\n");
    assert!(parse(&failed).unwrap_err().contains("Non-2xx"));
}
