use super::*;

/// Sixteen settings that all needed seven more rounds filled a card of the page.
///
/// Goal: a few are named; of many, those that need the same are counted, and none is lost.
#[test]
fn many_that_need_the_same_are_counted() {
    let needs = |rounds: u32| format!("needs about {rounds} more rounds");
    let few = [("a", needs(7)), ("b", needs(7))];
    assert_eq!(
        listed(&few),
        "a (needs about 7 more rounds), b (needs about 7 more rounds)"
    );
    let mut many = vec![("x", needs(41))];
    for name in ["a", "b", "c", "d", "e"] {
        many.push((name, needs(7)));
    }
    assert_eq!(
        listed(&many),
        "x (needs about 41 more rounds), 5 candidates (each needs about 7 more rounds)"
    );
}
