use super::*;

fn finding(state: FindingState, remedy: Option<&str>) -> Finding {
    Finding {
        section: Section::Serving,
        name: "open files",
        state,
        found: "1024: and a sentence that is longer than what is left of a line of 80 columns"
            .to_owned(),
        remedy: remedy.map(str::to_owned),
    }
}

/// Goal: a page has 80 columns at most, says what to do under what is not well, and sums up.
#[test]
fn a_page_fits_and_sums_up() {
    let remedy = "a command that is so long that it needs more than what is left of one line too";
    let findings = [
        finding(FindingState::Ok, None),
        finding(FindingState::Weak, Some(remedy)),
    ];
    let text = page("millpond", &findings, &summary(0, 1));
    assert!(
        text.lines().all(|line| line.chars().count() <= WIDTH),
        "{text}"
    );
    assert!(
        text.contains("\n  ok      open files      1024: and"),
        "{text}"
    );
    assert!(
        text.contains("\n  weak    open files      1024: and"),
        "{text}"
    );
    assert!(text.contains("> a command"), "{text}");
    assert!(
        text.ends_with("\nEverything essential is here; 1 thing could be better.\n"),
        "{text}"
    );
    assert!(!has_missing(&findings));
    assert!(has_missing(&[finding(FindingState::Missing, None)]));
    assert_eq!(summary(1, 0), "Something essential is MISSING.");
    assert_eq!(
        summary(2, 3),
        "2 essential things are MISSING; 3 things could be better."
    );
}
