use super::*;

/// Goal: numbers stand clear of all dots and of each other, as long as there is room.
#[test]
fn numbers_do_not_stand_on_dots() {
    let dots = [(100.0, 100.0), (108.0, 100.0), (104.0, 108.0)];
    let mut taken = Vec::new();
    for dot in dots {
        let at = free_place(dot, &dots, &taken);
        let distance = |other: &(f64, f64)| (at.0 - other.0).hypot(at.1 - other.1);
        assert!(dots.iter().all(|other| distance(other) >= 9.5), "{at:?}");
        assert!(
            taken.iter().all(|other| distance(other) >= NUMBER_GAP),
            "{at:?}"
        );
        taken.push(at);
    }
}

/// Goal: the section has the picture in both forms, every setting with what it changes, and the lines of the front;
/// names are escaped, and other comparisons have nothing.
#[test]
fn the_page_shows_settings() {
    let mut record = words::tests::record();
    let page = settings_front_section(&record);
    for part in [
        "svg role=\"img\" aria-label=\"Memory against CPU per request\" class=\"wide\"",
        "class=\"narrow\"",
        "one arena",
        "changes nothing",
        "Environment=&quot;MALLOC_CONF=narenas:1&quot;",
        "&lt;b&gt;",
        "dot full h1",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<b>"));
    record.analysis.settings_front = None;
    assert_eq!(settings_front_section(&record), "");
}
