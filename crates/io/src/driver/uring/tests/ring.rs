use super::*;

fn everything() -> DriverFeatures {
    DriverFeature::ALL
        .into_iter()
        .fold(DriverFeatures::default(), DriverFeatures::with)
}

/// Goal: a kernel that does not know a flag of the set-up gets a ring without it and without
/// what is newer, and keeps what is older.
#[test]
fn a_refused_flag_is_left_out_with_what_is_newer() {
    for (newer_count, refused) in SET_UP_STEPS.into_iter().enumerate() {
        let older_kernel = |features: DriverFeatures| match features.has(refused) {
            true => Err(Errno::INVAL),
            false => Ok(()),
        };
        let ((), features) = set_up(everything(), older_kernel).unwrap();
        for (position, step) in SET_UP_STEPS.into_iter().enumerate() {
            assert_eq!(
                features.has(step),
                position > newer_count,
                "{refused:?}: {step:?}"
            );
        }
        let left_out = SET_UP_STEPS[..=newer_count].iter();
        assert_eq!(
            features,
            left_out.fold(everything(), |set, step| set.without(*step))
        );
    }
}

/// Goal: without a single issuer there are no deferred task runs, and none are reported.
#[test]
fn deferred_task_runs_need_a_single_issuer() {
    let wanted = everything().without(DriverFeature::SingleIssuer);
    let ((), features) = set_up(wanted, |_| Ok(())).unwrap();
    assert!(!features.has(DriverFeature::DeferredTaskRun), "{features}");
}

/// Goal: a kernel that refuses whatever is left out is too old; one that refuses for another
/// reason is asked once.
#[test]
fn a_set_up_that_cannot_be_says_why() {
    let outcome = set_up::<()>(everything(), |_| Err(Errno::INVAL));
    let why = outcome.unwrap_err().to_string();
    assert!(why.contains("Linux 5.19"), "{why}");
    let calls = std::cell::Cell::new(0);
    let outcome = set_up::<()>(everything(), |_| {
        calls.set(calls.get() + 1);
        Err(Errno::NOSYS)
    });
    assert_eq!((outcome, calls.get()), (Err(UringUnavailable::Absent), 1));
}
