use super::*;

/// Goal: equal stacks add up, separators inside names do no harm, and folded text comes back.
#[test]
fn stacks_add_up_and_come_back_from_text() {
    let mut stacks = Stacks::default();
    stacks.add(["main", "operator;", "new u8"], 2);
    stacks.add(["main", "operator;", "new u8"], 3);
    stacks.add(["main"], 1);
    stacks.add(["nothing"], 0);
    stacks.add([], 9);
    let mut again = Stacks::default();
    again.merge(&stacks);
    assert_eq!(again.to_folded(), "main 1\nmain;operator:;new u8 5\n");
    assert_eq!(Stacks::parse_folded(&again.to_folded()), Ok(stacks));
    assert_eq!(again.total(), 6);
}

#[test]
fn lines_that_are_no_stacks_are_named() {
    for (text, line) in [("a;b 1\nc\n", 2), ("a -1", 1), (" 1", 1), ("a 1.5", 1)] {
        let error = Stacks::parse_folded(text).unwrap_err();
        assert_eq!(error.line, line, "{text:?}");
    }
    assert_eq!(Stacks::parse_folded("\n\n"), Ok(Stacks::default()));
}

/// Goal: the own weight of a function and the weight of its callees are separate, recursion counted once.
#[test]
fn own_and_caused() {
    let stacks = Stacks::parse_folded("a;b;a 5\na;c 3\na 1\n").unwrap();
    let found: Vec<(String, u64, u64)> = stacks
        .heaviest(2)
        .into_iter()
        .map(|function| (function.name, function.own, function.total))
        .collect();
    assert_eq!(found, [("a".to_owned(), 6, 9), ("c".to_owned(), 3, 3)]);
}
