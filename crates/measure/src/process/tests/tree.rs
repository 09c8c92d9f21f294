use super::*;

fn process(parent: u32, process_group: u32) -> Stat {
    Stat {
        state: 'S',
        parent,
        process_group,
        minor_faults: 0,
        major_faults: 0,
        user_ticks: 0,
        system_ticks: 0,
        ended: super::super::Ended::default(),
        threads: 1,
    }
}

/// Goal: grandchildren and orphans of the group belong to the tree; foreign processes and the group
/// of a parent do not.
#[test]
fn members_are_descendants_and_the_group() {
    let processes = BTreeMap::from([
        (1, process(0, 1)),
        (50, process(1, 50)),
        (51, process(50, 50)),
        (52, process(51, 52)),
        (53, process(1, 50)),
        (60, process(1, 60)),
        (61, process(60, 60)),
    ]);
    assert_eq!(members_of(50, &processes), [50, 51, 52, 53]);
    assert_eq!(members_of(60, &processes), [60, 61]);
    assert_eq!(members_of(99, &processes), Vec::<u32>::new());
    // The root has ended, its workers still run.
    let mut orphans = processes.clone();
    orphans.remove(&50);
    assert_eq!(members_of(50, &orphans), [51, 52, 53]);
}
