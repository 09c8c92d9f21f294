use super::*;

#[test]
fn parses_the_first_line() {
    let text = "some avg10=1.53 avg60=1.20 avg300=0.33 total=11220657\nfull avg10=0.00 total=9\n";
    assert_eq!(parse(text), Some(11_220_657_000));
    for bad in [
        "",
        "full total=1",
        "some avg10=1",
        "some total=x",
        "some total=18446744073709551615",
    ] {
        assert_eq!(parse(bad), None, "{bad:?}");
    }
}
