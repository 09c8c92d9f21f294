use super::*;

/// Goal: the boxes fill the width, run nothing, and say on a phone only what can be read.
#[test]
fn boxes_alone() {
    let stacks = Stacks::parse_folded("a;b<u8> 3\na;c 1\n").unwrap();
    let found = still(&stacks, Unit::Bytes, 400.0, true);
    assert_eq!(found.height, 34.0);
    for part in [
        "width=\"399.50\"",
        "width=\"299.50\"",
        "<title>b&lt;u8&gt;\n3 B",
    ] {
        assert!(found.elements.contains(part), "{part}: {}", found.elements);
    }
    for part in ["script", "class", "tabindex"] {
        assert!(!found.elements.contains(part), "{part}");
    }
    let narrow = still(&stacks, Unit::Bytes, 10.0, false).elements;
    assert!(
        !narrow.contains("<title>") && !narrow.contains("<text"),
        "{narrow}"
    );
    let what = Difference {
        title: "",
        before: "x",
        after: "y",
        unit: Unit::Bytes,
        weight_per_sample: 1.0,
    };
    let both = still_difference(&stacks, &stacks, &what, 400.0, true);
    assert!(
        both.elements.contains("<title>a\n4 B \u{2192} 4 B</title>"),
        "{}",
        both.elements
    );
}
