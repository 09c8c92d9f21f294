use super::*;

/// Goal: one, all, or a sentence that names what there is.
#[test]
fn names_choose_recipes() {
    assert_eq!(chosen(None).unwrap().len(), ALL.len());
    assert_eq!(chosen(Some("snmalloc")).unwrap()[0].name, "snmalloc");
    let sentence = chosen(Some("hoard")).unwrap_err();
    assert!(
        sentence.contains("hoard") && sentence.contains("rpmalloc"),
        "{sentence}"
    );
}
