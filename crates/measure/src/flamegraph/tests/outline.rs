use super::*;

fn parse(text: &str) -> Stacks {
    Stacks::parse_folded(text).unwrap()
}

/// Goal: with room for all, nothing is lost.
#[test]
fn a_small_profile_survives() {
    let stacks = parse("a;b c;d 3\na;b c 2\na 1\ne;b c 7\n");
    let lines = outline(&stacks, 100);
    assert_eq!(lines[0], "0 1 a");
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert_eq!(from_outline(&lines), stacks);
}

/// Goal: of many frames the widest stay, with their callers, and the sum stays what it was.
#[test]
fn the_widest_stay() {
    let many: String = (0..5_000)
        .map(|index| format!("main;work;leaf{index} {}\n", 1 + index % 7))
        .collect();
    let stacks = parse(&format!("{many}main;big;bigger 9000\n"));
    let lines = outline(&stacks, 4);
    assert_eq!(lines.len(), 4, "{lines:?}");
    let kept = from_outline(&lines);
    assert_eq!(kept.total(), stacks.total());
    assert!(kept.to_folded().contains("main;big;bigger 9000"));
    assert!(kept.to_folded().contains("main;work "));
    assert!(outline(&stacks, 0).is_empty());
}

/// Goal: names without end are cut, and lines without meaning do no harm.
#[test]
fn odd_lines() {
    let long = format!("{} 1\n", "x".repeat(4_000));
    assert!(outline(&parse(&long), 10)[0].chars().count() < 140);
    let lines = ["", "x y z", "9 4 deep", "0", "1 2 a b"].map(str::to_owned);
    assert_eq!(from_outline(&lines).to_folded(), "deep 4\ndeep;a b 2\n");
}
