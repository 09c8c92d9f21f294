use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const UNIX_S: i64 = 1_700_000_000;

fn set_at(jar: &mut Jar, field: &str, now_ns: u64) -> Deed {
    let now = Now {
        monotonic_ns: now_ns,
        unix_s: || UNIX_S,
    };
    jar.set(field.as_bytes(), || b"/d", false, now)
}

fn sent(jar: &Jar, path: &str, now_ns: u64) -> String {
    let mut out = b"old".to_vec();
    jar.write_field(path.as_bytes(), now_ns, &mut out);
    String::from_utf8(out).unwrap()
}

/// Goal: name and path are what a cookie is; the longer path is sent first, then the older one.
#[test]
fn cookies_are_sent_where_they_belong() {
    let mut jar = Jar::default();
    for field in [
        "a=1; Path=/",
        "b=2; path=/x",
        "c=3",
        "d=4; Path=nonsense",
        "a=5; Path=/x/",
    ] {
        assert_eq!(set_at(&mut jar, field, 1), Deed::Set, "{field}");
    }
    assert_eq!(sent(&jar, "/", 1), "Cookie: a=1\r\n");
    assert_eq!(sent(&jar, "/x", 1), "Cookie: b=2; a=1\r\n");
    assert_eq!(sent(&jar, "/xy", 1), "Cookie: a=1\r\n");
    assert_eq!(sent(&jar, "/x/y", 1), "Cookie: a=5; b=2; a=1\r\n");
    assert_eq!(sent(&jar, "/d/e", 1), "Cookie: c=3; d=4; a=1\r\n");
    assert_eq!(set_at(&mut jar, "c=longer", 1), Deed::Set);
    assert_eq!(sent(&jar, "/d", 1), "Cookie: c=longer; d=4; a=1\r\n");
    assert_eq!(sent(&Jar::default(), "/", 1), "");
}

/// Goal: each way of removing a cookie removes it, and so does time.
#[test]
fn cookies_expire() {
    let mut jar = Jar::default();
    for gone in [
        "a=; Max-Age=0",
        "a=; max-age=-5",
        "a=x; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
    ] {
        assert_eq!(set_at(&mut jar, "a=1", 7), Deed::Set);
        assert_eq!(set_at(&mut jar, gone, 7), Deed::Deleted, "{gone}");
        assert_eq!(sent(&jar, "/d", 7), "", "{gone}");
    }
    assert_eq!(
        set_at(
            &mut jar,
            "a=1; Max-Age=2; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            7
        ),
        Deed::Set
    );
    // Ten seconds later than the clock says.
    assert_eq!(
        set_at(&mut jar, "b=2; Expires=Tue, 14 Nov 2023 22:13:30 GMT", 7),
        Deed::Set
    );
    assert_eq!(sent(&jar, "/d", 6 + 2 * SECOND_NS), "Cookie: a=1; b=2\r\n");
    assert_eq!(sent(&jar, "/d", 7 + 2 * SECOND_NS), "Cookie: b=2\r\n");
    assert_eq!(sent(&jar, "/d", 7 + 10 * SECOND_NS), "");
    // The room of what expired is free again.
    assert_eq!(set_at(&mut jar, "c=3", 7 + 10 * SECOND_NS), Deed::Set);
    assert_eq!((jar.entries.len(), jar.bytes.len()), (1, 4));
}

#[test]
fn what_is_no_cookie_is_counted_as_that() {
    let mut jar = Jar::default();
    for field in ["", "a", "=b", "a=b\u{1}c", "a=b; Secure"] {
        assert_eq!(set_at(&mut jar, field, 1), Deed::Unusable, "{field:?}");
    }
    let now = Now {
        monotonic_ns: 1,
        unix_s: || UNIX_S,
    };
    assert_eq!(jar.set(b"a=\xff", || b"/", false, now), Deed::Unusable);
    assert_eq!(sent(&jar, "/d", 1), "");
    let now = Now {
        monotonic_ns: 1,
        unix_s: || UNIX_S,
    };
    assert_eq!(jar.set(b"a=b; Secure", || b"/", true, now), Deed::Set);
}

/// Goal: both limits hold, and neither harms what is there.
#[test]
fn a_server_cannot_fill_the_memory() {
    let mut jar = Jar::default();
    for number in 0..COOKIES_MAX {
        assert_eq!(set_at(&mut jar, &format!("n{number}=v"), 1), Deed::Set);
    }
    assert_eq!(set_at(&mut jar, "more=v", 1), Deed::Overflowed);
    assert_eq!(set_at(&mut jar, "n7=w", 1), Deed::Set);
    let before = jar.bytes.len();
    let large = format!("n8={}", "x".repeat(COOKIE_BYTES_MAX));
    assert_eq!(set_at(&mut jar, &large, 1), Deed::Overflowed);
    assert!(jar.bytes.len() < before && jar.entries.len() == COOKIES_MAX - 1);
    let huge = format!("y={}", "x".repeat(1 << 17));
    assert_eq!(set_at(&mut jar, &huge, 1), Deed::Overflowed);
}

proptest! {
    /// Goal: after any fields in any order, what is sent is what a map of name and path says.
    #[test]
    fn a_jar_is_a_map(
        fields in prop::collection::vec((0_u8..5, "[a-z]{0,6}", 0_u8..3, prop::option::of(0_u64..20)), 0..40),
    ) {
        let mut jar = Jar::default();
        let mut model = BTreeMap::new();
        for (now_s, (name, value, path, age_s)) in (0_u64..).zip(fields) {
            let (name, path) = (format!("n{name}"), ["/", "/p", "/p/q"][usize::from(path)]);
            let age = age_s.map_or(String::new(), |age_s| format!("; Max-Age={age_s}"));
            set_at(&mut jar, &format!("{name}={value}; Path={path}{age}"), now_s * SECOND_NS);
            let until_s = age_s.map_or(u64::MAX, |age_s| now_s + age_s);
            model.insert((name, path), (value, until_s));
            model.retain(|_, (_, until_s)| *until_s > now_s);
            let mut got: Vec<String> = sent(&jar, "/p/q", now_s * SECOND_NS)
                .trim_start_matches("Cookie: ")
                .trim_end()
                .split("; ")
                .filter(|pair| !pair.is_empty())
                .map(str::to_owned)
                .collect();
            got.sort();
            let mut expected: Vec<String> = model
                .iter()
                .map(|((name, _), (value, _))| format!("{name}={value}"))
                .collect();
            expected.sort();
            prop_assert_eq!(got, expected);
        }
    }
}
