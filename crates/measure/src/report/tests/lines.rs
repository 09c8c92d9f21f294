use super::*;

/// Goal: lines end before the width, later ones are set in, and nothing is lost but blanks at a
/// line's end.
#[test]
fn wraps_at_blanks() {
    for (sentence, width, indent, lines) in [
        ("one two three", 8, "  ", "one two\n  three\n"),
        ("  a b", 80, "    ", "  a b\n"),
        ("unbreakablylong x", 5, "", "unbreakablylong\nx\n"),
        ("it is 4 %", 7, "", "it is\n4 %\n"),
        (
            "in 'two  blanks' there",
            20,
            "",
            "in 'two  blanks'\nthere\n",
        ),
        ("four  five", 5, " ", "four\n five\n"),
        ("", 5, "", "\n"),
    ] {
        assert_eq!(wrapped(sentence, width, indent), lines);
    }
}
