use super::*;

fn sides() -> (Stacks, Stacks) {
    let parse = |text| Stacks::parse_folded(text).unwrap();
    (
        parse("main;malloc 400\nmain;work 1000\nmain;old 200\n"),
        parse("main;malloc 100\nmain;work 1010\nmain;new 90\n"),
    )
}

/// Goal: both weights of every stack of either side.
#[test]
fn both_sides_are_folded() {
    let (before, after) = sides();
    let golden = "main;malloc 400 100\nmain;new 0 90\nmain;old 200 0\nmain;work 1000 1010\n";
    assert_eq!(fold_difference(&before, &after), golden);
}

/// Goal: more is red, less is blue, noise is neither, and nothing of either side is missing.
#[test]
fn colours_say_what_changed() {
    let (before, after) = sides();
    let what = Difference {
        title: "test",
        before: "glibc",
        after: "other",
        unit: Unit::Samples,
        weight_per_sample: 1.0,
    };
    let picture = draw_difference(&before, &after, &what);
    let fill = |name: &str| {
        let (_, rest) = picture.split_once(&format!("<title>{name}\n")).unwrap();
        let (_, rest) = rest.split_once("fill=\"hsl(").unwrap();
        rest.split_once(',').unwrap().0.parse::<u32>().unwrap()
    };
    assert_eq!(
        ["malloc", "new", "old", "work"].map(fill),
        [212, 6, 212, 40],
        "{picture}"
    );
    let words = "glibc 400 samples (25.00 %), other 100 samples (8.33 %): -300 samples<";
    assert!(picture.contains(words), "{picture}");
    assert!(
        picture.contains("+10 samples, within the noise"),
        "{picture}"
    );
    let coarse = Difference {
        weight_per_sample: 1e6,
        ..what
    };
    let picture = draw_difference(&before, &after, &coarse);
    assert!(!picture.contains("hsl(6,") && !picture.contains("hsl(212,"));
}
