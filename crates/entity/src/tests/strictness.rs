use super::*;

/// Goal: each parameter is known and comes once; empty pairs say nothing.
#[test]
fn parameters_are_known_and_single() {
    let names = parameters(&Route::Put(b""));
    for query in [
        "",
        "id=a",
        "id=a&expires=%2B1&replicas=1/1",
        "&id=a&&",
        "id",
    ] {
        assert_eq!(check_parameters(names, query.as_bytes()), Ok(()), "{query}");
    }
    for query in [
        "id=a&id=b",
        "id=a&expire=1",
        "Id=a",
        "id=a&i%64=b",
        "=",
        "id=a&expires=1&expires=1",
    ] {
        let refused = check_parameters(names, query.as_bytes());
        assert_eq!(refused, Err(Reply::BadParameter), "{query}");
    }
}
