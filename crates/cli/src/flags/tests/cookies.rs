use super::*;

/// Goal: without --cookies the pairs are one field, with it they are each user's first ones.
#[test]
fn pairs_become_a_field_or_a_plan() {
    let flags = |cookies, pairs: &[&str]| CookieFlags {
        cookies,
        cookie: pairs
            .iter()
            .map(|text| parse_cookie(text).unwrap())
            .collect(),
    };
    assert_eq!(flags(false, &[]).field(&[]).unwrap(), None);
    assert_eq!(flags(false, &[]).plan(), None);
    let field = flags(false, &["a=b", "c=d=e"]).field(&[]).unwrap();
    assert_eq!(field, Some(("Cookie".to_owned(), "a=b; c=d=e".to_owned())));
    let users = flags(true, &["a=b"]);
    assert_eq!(users.field(&[]).unwrap(), None);
    assert_eq!(
        users.plan().unwrap().given,
        [("a".to_owned(), "b".to_owned())]
    );
    let twice = [("cookie".to_owned(), "x=y".to_owned())];
    assert!(users.field(&twice).is_err());
    assert!(flags(false, &["a=b"]).field(&twice).is_err());
    assert_eq!(flags(false, &[]).field(&twice).unwrap(), None);
    for bad in ["a", "=b", "a=b;c", "a b=c", "a=b\u{1}"] {
        assert!(parse_cookie(bad).is_err(), "{bad:?}");
    }
}
