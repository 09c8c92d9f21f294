use super::*;

/// Goal: blocks are found with their headings; what is no recipe is not.
#[test]
fn recipes_are_blocks_below_headings() {
    let text = "## A\n```sh\nno\n```\n### B\ntext\n```sh\none\ntwo\n```\n```\nno\n```\n\
                ### C\n```sh\nthree\n```\n## D\n```sh\nno\n```\n";
    let expected = [("B", "one\ntwo\n"), ("C", "three\n")];
    let expected = expected.map(|(heading, script)| (heading.to_owned(), script.to_owned()));
    assert_eq!(recipes(text), expected);
}
