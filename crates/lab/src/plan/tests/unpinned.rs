use super::*;

/// Memory on all CPUs was measured in every round or in none, and in the default comparison it was none.
///
/// Goal: where there is no time for every round, as many as a claim takes have it, spread over those that are
/// certain; the plan stays within its time and says it.
#[test]
fn memory_on_all_cpus_takes_part_of_the_rounds() {
    let known = |left| Known {
        is_pinned: true,
        left: Duration::from_secs(left),
        ..Known::example()
    };
    let counts: Vec<(u32, u32)> = [200, 260, 270, 900]
        .iter()
        .map(|&left| {
            let known = known(left);
            let plan = Plan::make(&known);
            assert!(
                !plan.over_budget && plan.duration(7) <= known.left,
                "{plan:?}"
            );
            let chosen = (0..plan.rounds).filter(|&round| plan.is_unpinned_round(round));
            assert_eq!(chosen.count(), plan.unpinned_rounds as usize, "{plan:?}");
            let says = |part: &str| {
                let lines = plan.describe(&["PUT", "GET"], 7, &known);
                lines.iter().any(|line| line.contains(part))
            };
            let is_partial = plan.unpinned_rounds > 0 && plan.unpinned_rounds < plan.rounds;
            assert_eq!(says("on all CPUs too in"), is_partial, "{plan:?}");
            assert_eq!(
                says("no time to measure it on all"),
                plan.unpinned_rounds == 0
            );
            (plan.unpinned_rounds, plan.rounds)
        })
        .collect();
    assert!(
        counts.iter().any(|&(some, all)| some > 0 && some < all),
        "{counts:?}"
    );
    assert!(counts.iter().any(|&(some, all)| some == all), "{counts:?}");
}

/// "There is no time" said nothing of how much there would have to be.
///
/// Goal: a budget that is as much longer as the line says has memory on all CPUs, in a plan that fitted and in one
/// that did not.
#[test]
fn a_budget_that_lacks_time_says_how_much() {
    for seconds in (20..=260).step_by(20) {
        let mut known = Known {
            is_pinned: true,
            left: Duration::from_secs(seconds),
            ..Known::example()
        };
        let plan = Plan::make(&known);
        if plan.unpinned_rounds > 0 {
            continue;
        }
        let line = plan.describe_unpinned(&known).unwrap();
        let (_, rest) = line.split_once("--time-budget that is ").unwrap();
        let longer: u64 = rest.split_once(" s longer").unwrap().0.parse().unwrap();
        known.left += Duration::from_secs(longer);
        let longer_plan = Plan::make(&known);
        assert!(
            longer_plan.unpinned_rounds > 0,
            "{seconds}: {line}, {longer_plan:?}"
        );
    }
}

/// Goal: so few processes on all CPUs as are planned can be claimed from, and no fewer can.
#[test]
fn a_claim_takes_few_processes_on_all_cpus() {
    assert_eq!(fewest_rounds(8, 1, 6), 4);
    assert_eq!(fewest_rounds(10, 1, 5), 3);
    assert_eq!(fewest_rounds(3, 1, 6), 3);
}
