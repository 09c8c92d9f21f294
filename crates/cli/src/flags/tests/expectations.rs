use super::*;

#[test]
fn statuses_are_lists_and_ranges() {
    let set = parse_statuses("404,200-204").unwrap();
    assert!([200, 201, 204, 404].iter().all(|&code| set.contains(code)));
    assert!([199, 205, 403, 500].iter().all(|&code| !set.contains(code)));
    for text in ["", "abc", "100", "600", "204-200", "200,", "200-"] {
        assert!(parse_statuses(text).is_err(), "{text}");
    }
}
