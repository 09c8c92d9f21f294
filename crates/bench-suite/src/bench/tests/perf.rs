use super::*;

#[test]
fn perf_s_lines_are_read() {
    let text = "# started on Sat\n\n123456,,instructions:u,4003,100.00,,\n\
                <not supported>,,cycles:u,0,0.00,,\n";
    assert_eq!(parse(text, "instructions:u"), Ok(123_456.0));
    assert!(parse(text, "cycles:u").unwrap_err().contains("cycles:u"));
    assert!(parse(text, "cycles:k").is_err());
}
