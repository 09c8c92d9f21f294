use super::*;

#[test]
fn several_are_steady_if_each_is() {
    let one = |became_steady, transient_ns| LoadWarmUp {
        duration_ns: 5,
        until_steady: Some(LoadSteadiness {
            limit_ns: 9,
            became_steady,
            transient_ns,
            slices: 12,
        }),
    };
    let both = one(true, Some(3))
        .of_both(one(true, Some(4)))
        .until_steady
        .unwrap();
    assert_eq!((both.became_steady, both.transient_ns), (true, Some(4)));
    let both = one(true, Some(3))
        .of_both(one(false, None))
        .until_steady
        .unwrap();
    assert_eq!((both.became_steady, both.transient_ns), (false, None));
    let given = LoadWarmUp {
        duration_ns: 7,
        until_steady: None,
    };
    assert_eq!(given.of_both(one(true, None)).duration_ns, 7);
}
