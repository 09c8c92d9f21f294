use super::*;

#[test]
fn totals_are_read() {
    let text = "% time     seconds  usecs/call     calls    errors syscall\n\
        ------ ----------- ----------- --------- --------- ----------------\n\
         60.00    0.100000           3     30000           recvfrom\n\
        ------ ----------- ----------- --------- --------- ----------------\n\
        100.00    0.123456           3     40123        12 total\n";
    assert_eq!(total(text), Some(40_123.0));
    assert_eq!(total("nothing\n"), None);
}
