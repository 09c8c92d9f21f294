use super::*;
use millpond_mempool::PoolMode;
use proptest::prelude::*;

fn decode(path: &[u8]) -> Result<(Vec<u8>, bool), PathRefusal> {
    let arena = Arena::new("test", PoolMode::On);
    FilePath::decode(path, &arena).map(|path| (path.relative.to_vec(), path.is_index))
}

/// Goal: plain names pass, escaped or not; directories become their index.
#[test]
fn plain_paths_become_relative_names() {
    for (path, relative, is_index) in [
        ("/", "index.html", true),
        ("/a", "a", false),
        ("/a/", "a/index.html", true),
        ("/a/b.css", "a/b.css", false),
        ("/a%20b", "a b", false),
        ("/%61/%62/", "a/b/index.html", true),
        ("/%E2%82%ac", "\u{20ac}", false),
        ("/a%5cb", "a\\b", false),
        ("/a..b/c.", "a..b/c.", false),
        (
            "/.well-known/acme-challenge/t",
            ".well-known/acme-challenge/t",
            false,
        ),
        ("/100%25", "100%", false),
    ] {
        assert_eq!(
            decode(path.as_bytes()),
            Ok((relative.as_bytes().to_vec(), is_index)),
            "{path}"
        );
    }
}

/// Goal: names that are not plain are refused, in every spelling.
#[test]
fn hostile_paths_are_refused() {
    for path in [
        "",
        "*",
        "a",
        "//",
        "//a",
        "/a//b",
        "/a//",
        "/.",
        "/..",
        "/../",
        "/./",
        "/a/..",
        "/a/../b",
        "/%2e%2e/a",
        "/.%2e/a",
        "/%2E",
        "/a/%2e%2E/",
        "/%2f",
        "/a%2fb",
        "/a%2Fb",
        "/%00",
        "/a%00.html",
        "/%",
        "/%2",
        "/a%",
        "/%g0",
        "/%0g",
        "/%+1",
        "/% 1",
        "/a\\b",
        "/\\..\\a",
        "/\\evil.example/",
        "/%252e%252e%2fa",
    ] {
        assert_eq!(
            decode(path.as_bytes()),
            Err(PathRefusal::Malformed),
            "{path}"
        );
    }
    for path in [
        "/.git/config",
        "/a/.htpasswd",
        "/.env",
        "/%2egit/",
        "/a/.well-known/b",
        "/...",
    ] {
        assert_eq!(decode(path.as_bytes()), Err(PathRefusal::Hidden), "{path}");
    }
}

proptest! {
    /// Goal: whatever comes, an accepted name keeps the promises of its type.
    #[test]
    fn accepted_names_are_plain(path in "/[/.%a2eEfF0\\\\\u{0}-\u{ff}]{0,12}") {
        if let Ok((relative, is_index)) = decode(path.as_bytes()) {
            prop_assert!(!relative.contains(&0));
            for segment in relative.split(|&byte| byte == b'/') {
                prop_assert!(!segment.is_empty() && segment != b"." && segment != b"..");
            }
            prop_assert_eq!(is_index, path.ends_with('/'));
            prop_assert!(!is_index || relative.ends_with(INDEX));
        }
    }

    /// Goal: every name without slash, NUL and leading dot survives being escaped byte by byte.
    #[test]
    fn escaping_everything_round_trips(name in proptest::collection::vec(1_u8..=255, 1..40)) {
        prop_assume!(!name.contains(&b'/') && name[0] != b'.');
        let escaped: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        prop_assert_eq!(decode(format!("/{escaped}").as_bytes()), Ok((name, false)));
    }
}
