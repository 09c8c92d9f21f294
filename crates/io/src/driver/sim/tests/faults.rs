use super::*;

/// Goal: one seed is one plan, different seeds differ, and each fault occurs in some plan and
/// is absent from another.
#[test]
fn plans_come_from_their_seed_and_cover_all_faults() {
    let plans: Vec<FaultPlan> = (0..64).map(FaultPlan::drawn).collect();
    assert_eq!(plans[7], FaultPlan::drawn(7));
    for chance in [
        |plan: &FaultPlan| plan.split_receives,
        |plan: &FaultPlan| plan.short_sends,
        |plan: &FaultPlan| plan.late_sends,
        |plan: &FaultPlan| plan.delays,
        |plan: &FaultPlan| plan.bursts,
        |plan: &FaultPlan| plan.spurious_wakes,
        |plan: &FaultPlan| plan.buffers_missing,
        |plan: &FaultPlan| plan.resets_lose_input,
        |plan: &FaultPlan| plan.accept_failures,
        |plan: &FaultPlan| plan.connect_failures,
        |plan: &FaultPlan| plan.delayed_closes,
    ] {
        assert!(plans.iter().any(|plan| chance(plan) > 0.3));
        assert!(plans.iter().any(|plan| chance(plan) == 0.0));
        assert!(plans.iter().all(|plan| chance(plan) <= 1.0));
    }
    assert!(plans.iter().all(|plan| plan.resets == 0.0));
}

/// Goal: scripted cuts fall exactly where they were asked for, whatever arrives at once.
#[test]
fn scripted_cuts_are_exact() {
    let (plan, mut rng) = (FaultPlan::none(), Rng::with_seed(1));
    let cuts = Cuts::At(vec![3, 7]);
    let mut take = |offset, available| cuts.take(offset, available, &plan, &mut rng);
    assert_eq!((take(0, 10), take(3, 10), take(7, 10)), (3, 4, 10));
    assert_eq!((take(0, 2), take(2, 9)), (2, 1));
}
