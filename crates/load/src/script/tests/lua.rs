use super::*;

#[test]
fn the_first_error_is_the_one_that_is_told() {
    let mut errors = ScriptErrors::default();
    errors.merge(ScriptErrors::default());
    errors.add("one".to_owned());
    errors.add("two".to_owned());
    let mut all = ScriptErrors::default();
    all.merge(errors);
    assert_eq!((all.count, all.first.as_deref()), (2, Some("one")));
}
