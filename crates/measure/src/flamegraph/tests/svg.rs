use super::*;

fn picture(stacks: &str, unit: Unit) -> String {
    let stacks = Stacks::parse_folded(stacks).unwrap();
    let picture = Picture {
        title: "a \"test\"",
        note: "one & two",
        unit,
    };
    draw(&stacks, &picture)
}

/// Goal: a caller is as wide as its callees together, names are escaped, and shares add up.
#[test]
fn boxes_are_as_wide_as_what_they_stand_for() {
    let picture = picture("a;b<u8> 3\na;c 1\nd 4\n", Unit::Samples);
    for part in [
        "<title>a\n4 samples (50.00 %), 0.00 % in itself</title>",
        "<title>b&lt;u8&gt;\n3 samples (37.50 %), 37.50 % in itself</title>",
        "<title>d\n4 samples (50.00 %), 50.00 % in itself</title>",
        ">8 samples; one &amp; two</text>",
        "aria-label=\"a &quot;test&quot;\"",
    ] {
        assert!(picture.contains(part), "{part} in {picture}");
    }
    assert_eq!(picture.matches("width=\"589.50\"").count(), 2, "{picture}");
}

/// Goal: invisible boxes are left out, so that a picture stays small, and a recursion without end
/// is cut.
#[test]
fn pictures_stay_small() {
    let many: String = (0..10_000)
        .map(|index| format!("all;f{index} 1\n"))
        .collect();
    let text = picture(&many, Unit::Bytes);
    assert_eq!(text.matches("class=\"box\"").count(), 1);
    let deep = format!("{} 1\n", vec!["again"; 5_000].join(";"));
    let text = picture(&deep, Unit::Calls);
    assert_eq!(text.matches("class=\"box\"").count(), DEPTH_MAX);
    assert!(picture("", Unit::Bytes).contains("0 B"));
}

#[test]
fn labels_are_cut() {
    assert_eq!(label("malloc", 100.0).as_deref(), Some("malloc"));
    assert_eq!(label("malloc", 36.0).as_deref(), Some("mal.."));
    assert_eq!(label("malloc", 10.0), None);
}

/// Goal: neither script nor style can end the element that holds it.
#[test]
fn script_and_style_stay_inside() {
    assert!(!SCRIPT.contains("]]>") && !SCRIPT.contains("</script"));
    assert!(!STYLE.contains('<') && !STYLE.contains('&'));
}
