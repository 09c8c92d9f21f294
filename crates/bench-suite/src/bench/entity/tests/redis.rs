use super::*;

/// Goal: the rate is that of the command asked for, and none at all is an error.
#[test]
fn the_rate_of_a_command_is_read() {
    let text = "\"test\",\"rps\"\n\"SET\",\"816326.56\",\"0.2\"\n\"GET\",\"754717.00\"\n";
    assert_eq!(rate(text, "get"), Ok(754_717.0));
    assert!(rate("\"test\",\"rps\"\n", "get").is_err());
}
