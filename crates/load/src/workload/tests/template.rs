//! Templates against a plain reading of their rules.
use super::super::keys::Draws;
use super::*;
use crate::request_plan::Values;
use millpond_mempool::{BlockPool, PoolMode};
use proptest::prelude::*;

fn sources() -> Sources {
    Sources::new("key", Some(4), 1_000, Values::ranging(3, 5, 40))
}

fn written(pieces: Vec<Piece>, lines: Vec<Lines>, number: u64, key: u64) -> Vec<u8> {
    let mut sources = sources();
    sources.lines = lines;
    let template = Template::new(Vec::new(), pieces, &sources);
    let draw = Draw {
        number,
        key,
        draws: Draws::new(9, number),
        sources: &sources,
    };
    let pool = BlockPool::new("test", PoolMode::Off);
    let mut out = Buffer::with_capacity(&pool, template.bytes_max()).unwrap();
    template.append(&draw, &mut out);
    let lengths: usize = template.body.iter().map(|piece| piece.len(&draw)).sum();
    assert_eq!(
        lengths,
        out.len(),
        "the length said beforehand is the length written"
    );
    out.to_vec()
}

fn text(template: &str, number: u64, key: u64) -> String {
    let mut compiler = Compiler::default();
    let pieces = compiler.compile(template.as_bytes(), Place::Body).unwrap();
    String::from_utf8(written(pieces, compiler.lines, number, key)).unwrap()
}

#[test]
fn placeholders_become_what_they_say() {
    assert_eq!(text("a{seq}b{key}c", 7, 42), "a7bkey0042c");
    assert_eq!(text("{key}{key}", 1, 5), "key0005key0005");
    assert_eq!(text("{rand:3:3}|{rand:-2:-2}", 1, 0), "3|-2");
    assert_eq!(text("", 1, 0), "");
    let uuid = text("{uuid}", 1, 0);
    assert_eq!(uuid.len(), 36);
    assert_eq!((&uuid[8..9], &uuid[14..15]), ("-", "4"));
    assert!("89ab".contains(&uuid[19..20]), "{uuid}");
    let two = text("{uuid} {uuid}", 1, 0);
    assert_ne!(two[..36], two[37..], "each place draws anew");
    let end = text("{scan_end:3}", 1, 10);
    assert!(
        ["key0011", "key0012", "key0013"].contains(&&end[..]),
        "{end}"
    );
    assert_eq!(
        text("{scan_end:3}", 1, 9_998),
        "key9999",
        "ends with the digits"
    );
}

/// Goal: JSON needs no escapes; an escape is for the names themselves.
#[test]
fn other_braces_are_themselves() {
    for literal in [
        "{}",
        "{\"a\":{\"b\":1}}",
        "{ seq }",
        "{seq",
        "seq}",
        "{{}}",
        "{{x}}",
        "{unknown}",
        "{",
    ] {
        assert_eq!(text(literal, 1, 2), literal);
        assert!(!is_template(literal.as_bytes()), "{literal}");
    }
    for (template, expected) in [
        ("{\"n\":{seq}}", "{\"n\":1}"),
        ("{{seq}}", "{seq}"),
        ("{{rand:1:2}}{seq}", "{rand:1:2}1"),
        ("{\"a\":{\"id\":\"{key}\"}}", "{\"a\":{\"id\":\"key0002\"}}"),
    ] {
        assert_eq!(text(template, 1, 2), expected);
        assert!(is_template(template.as_bytes()), "{template}");
    }
}

#[test]
fn mistakes_are_told() {
    let error = |template: &str, place| {
        let mut compiler = Compiler::default();
        compiler.compile(template.as_bytes(), place).unwrap_err()
    };
    for template in [
        "{rand:}",
        "{rand:1}",
        "{rand:9:1}",
        "{rand:a:b}",
        "{rand:1:2:3}",
    ] {
        assert!(
            error(template, Place::Body).contains("lower first"),
            "{template}"
        );
    }
    assert!(error("{file}", Place::Body).contains("--template-file"));
    assert!(error("{file:}", Place::Body).contains("names no file"));
    assert!(error("{file:/nowhere/at/all}", Place::Body).contains("/nowhere/at/all"));
    assert!(error("{scan_end:0}", Place::Body).contains("above 0"));
    // A path cannot hold braces, so there a misspelt name is no text.
    assert!(error("/{sequ}", Place::Target).contains("{sequ} is no placeholder"));
}

/// Goal: request i takes line i, lines end as files of any system end them, and a line cannot end
/// the request line or the field it is put into.
#[test]
fn lines_are_taken_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ids");
    std::fs::write(&path, "one\r\ntwo\n\n three").unwrap();
    let template = format!("{{file:{}}}", path.display());
    let all: Vec<String> = (0..4).map(|number| text(&template, number, 0)).collect();
    assert_eq!(all, ["one", "two", " three", "one"]);
    let mut compiler = Compiler::new(Some(path.clone()));
    assert_eq!(
        compiler
            .compile(b"{file}{file}", Place::Body)
            .unwrap()
            .len(),
        2
    );
    assert_eq!(compiler.lines.len(), 1, "a file is read once");
    let error = compiler.compile(b"{file}", Place::Target).unwrap_err();
    assert!(error.contains("line 4 of"), "{error}");
    assert!(compiler.compile(b"{file}", Place::Field).is_ok());
    std::fs::write(&path, "a\0b").unwrap();
    let error = Compiler::default()
        .compile(template.as_bytes(), Place::Field)
        .unwrap_err();
    assert!(error.contains("control character"), "{error}");
    std::fs::write(&path, "\n\r\n").unwrap();
    let error = Compiler::default()
        .compile(template.as_bytes(), Place::Body)
        .unwrap_err();
    assert!(error.contains("holds no line"), "{error}");
}

/// A template in pieces, with what each becomes unless it is drawn.
fn part() -> impl Strategy<Value = (String, Option<String>)> {
    prop_oneof![
        "[a-z :/?=\"}-]{0,8}".prop_map(|text| (text.clone(), Some(text))),
        Just(("{seq}".to_owned(), None)),
        Just(("{key}".to_owned(), None)),
        (any::<i64>(), any::<i64>())
            .prop_map(|(a, b)| (format!("{{rand:{}:{}}}", a.min(b), a.max(b)), None)),
        Just(("{uuid}".to_owned(), None)),
    ]
}

proptest! {
    /// Goal: any row of parts is written part by part, within the room it asks for, twice the same.
    #[test]
    fn any_template_is_written_part_by_part(
        parts in prop::collection::vec(part(), 0..12), number in any::<u64>(), key in 0u64..10_000
    ) {
        let template: String = parts.iter().map(|(text, _)| &text[..]).collect();
        let whole = text(&template, number, key);
        prop_assert_eq!(&whole, &text(&template, number, key));
        let mut rest = &whole[..];
        for (text, literal) in &parts {
            let taken = match (&text[..], literal) {
                (_, Some(literal)) => literal.len(),
                ("{seq}", _) => {
                    prop_assert!(rest.starts_with(&number.to_string()));
                    number.to_string().len()
                }
                ("{key}", _) => {
                    let id = format!("key{key:04}");
                    prop_assert!(rest.starts_with(&id));
                    id.len()
                }
                ("{uuid}", _) => 36,
                (rand, _) => {
                    let mut bounds = rand[6..rand.len() - 1].split(':').map(|bound| bound.parse::<i64>().unwrap());
                    let (low, high) = (bounds.next().unwrap(), bounds.next().unwrap());
                    // Digits of what follows may touch: the longest number in range that is there.
                    let fits = (1..=rest.len().min(20)).filter(|&len| rest.is_char_boundary(len)).find(|&len| {
                        rest[..len].parse::<i64>().is_ok_and(|drawn| (low..=high).contains(&drawn))
                    });
                    prop_assert!(fits.is_some(), "{rand} in {rest:?}");
                    // Text behind it cannot be distinguished by reading; the length is the test's.
                    return Ok(());
                }
            };
            prop_assert!(literal.as_ref().is_none_or(|literal| rest.starts_with(literal)));
            rest = &rest[taken..];
        }
        prop_assert_eq!(rest, "");
    }

    /// Goal: text that is no template is sent unchanged, byte for byte.
    #[test]
    fn other_bytes_pass(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assume!(!is_template(&bytes));
        let mut compiler = Compiler::default();
        let pieces = compiler.compile(&bytes, Place::Body).unwrap();
        prop_assert_eq!(written(pieces, Vec::new(), 1, 2), bytes);
    }
}

/// Goal: numbers in a range are equally likely, ends included: chi-square of ten cells, 9 degrees of
/// freedom, outside 0.5..35 less than once in ten thousand seeds.
#[test]
fn random_numbers_are_uniform() {
    let mut counts = [0f64; 10];
    for number in 0..20_000 {
        let drawn: i64 = text("{rand:-5:4}", number, 0).parse().unwrap();
        counts[(drawn + 5) as usize] += 1.0;
    }
    let sum: f64 = counts
        .iter()
        .map(|count| (count - 2_000.0).powi(2) / 2_000.0)
        .sum();
    assert!((0.5..35.0).contains(&sum), "{sum}: {counts:?}");
}
