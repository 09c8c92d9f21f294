use super::*;

const READER: &str = "reader-0123456789";
const WRITER: &str = "writer-0123456789==";

fn limited(readers: Option<&str>) -> Access {
    let of = |text: &str| Tokens::parse(text).unwrap();
    Access::limited(of(WRITER), readers.map(of))
}

/// Goal: each right with each token, and with what is nearly one.
#[test]
fn rights_follow_from_tokens() {
    use AccessRefusal::{NoToken, OnlyReads, UnknownToken};
    use Right::{Read, Write};
    let bearer = |token: &str| Some(format!("Bearer {token}"));
    let cut = bearer(&WRITER[..18]);
    let cases = [
        (None, Err(NoToken), Err(NoToken)),
        (Some("Basic dTpw".to_owned()), Err(NoToken), Err(NoToken)),
        (Some("Bearer".to_owned()), Err(NoToken), Err(NoToken)),
        (bearer(""), Err(UnknownToken), Err(UnknownToken)),
        (cut, Err(UnknownToken), Err(UnknownToken)),
        (bearer(READER), Ok(()), Err(OnlyReads)),
        (bearer(WRITER), Ok(()), Ok(())),
        (Some(format!("bearer   {WRITER}")), Ok(()), Ok(())),
    ];
    let access = limited(Some(READER)).for_shard();
    for (field, read, write) in &cases {
        let field = field.as_deref().map(str::as_bytes);
        assert_eq!(access.check(Read, field), *read, "{field:?}");
        assert_eq!(access.check(Write, field), *write, "{field:?}");
    }
    let open_to_readers = limited(None).for_shard();
    assert_eq!(open_to_readers.check(Read, None), Ok(()));
    assert_eq!(open_to_readers.check(Write, None), Err(NoToken));
    let field = bearer(READER).unwrap();
    let reader = Some(field.as_bytes());
    assert_eq!(open_to_readers.check(Write, reader), Err(UnknownToken));
    for right in [Read, Write] {
        assert_eq!(Access::default().for_shard().check(right, None), Ok(()));
    }
}

/// Goal: every shard knows other tokens from the next request on, whenever it began, and the old ones no more.
#[test]
fn tokens_are_replaced() {
    let access = limited(Some(READER));
    let shards = [access.for_shard(), access.clone().for_shard()];
    let field = |token: &str| format!("Bearer {token}").into_bytes();
    let new = Tokens::parse("newer-0123456789").unwrap();
    access.replace(new, Some(Tokens::parse(READER).unwrap()));
    for shard in shards.iter().chain([&access.for_shard()]) {
        let old = shard.check(Right::Write, Some(&field(WRITER)));
        assert_eq!(old, Err(AccessRefusal::UnknownToken));
        assert_eq!(
            shard.check(Right::Write, Some(&field("newer-0123456789"))),
            Ok(())
        );
        assert_eq!(shard.check(Right::Read, Some(&field(READER))), Ok(()));
    }
}

/// Goal: a file may have comments and several tokens; an invalid one is named by its line, and no token is ever shown.
#[test]
fn lists_are_read_and_mistakes_named() {
    let text = format!("# ours\n\n{READER}\n  {WRITER}\r\n");
    let tokens = Tokens::parse(&text).unwrap();
    assert!(tokens.contain(READER.as_bytes()) && tokens.contain(WRITER.as_bytes()));
    assert_eq!(format!("{tokens:?}"), "2 tokens");
    let long = "a".repeat(TOKEN_BYTES_MAX + 1);
    for (text, error) in [
        ("# nothing\n", TokensError::Empty),
        (
            "\nshort",
            TokensError::Length {
                line: 2,
                found_bytes: 5,
            },
        ),
        (
            &*long,
            TokensError::Length {
                line: 1,
                found_bytes: 513,
            },
        ),
        ("two words are none", TokensError::Malformed { line: 1 }),
        ("====================", TokensError::Malformed { line: 1 }),
        ("0123456789=0123456789", TokensError::Malformed { line: 1 }),
    ] {
        assert_eq!(Tokens::parse(text), Err(error), "{text}");
        assert!(!error.to_string().contains(text), "{error}");
    }
}
