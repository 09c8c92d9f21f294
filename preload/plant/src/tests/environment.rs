use super::*;

#[test]
fn what_is_no_number_plants_nothing() {
    assert_eq!(parse(b"300"), 300);
    for bad in [
        &b""[..],
        b"-1",
        b"3 ",
        b"30s",
        b"many",
        b"\xff",
        b"18446744073709551616",
    ] {
        assert_eq!(parse(bad), 0);
    }
    assert_eq!(number(c"PLANT_OF_THIS_NAME_THERE_IS_NONE"), 0);
}
