use super::*;

/// Waits that begin with a spin, of the next `count`, none of which pays.
fn vain_spins(poll: &mut BusyPoll, count: u32) -> u32 {
    let spin = |poll: &mut BusyPoll| {
        let is_due = poll.is_due();
        if is_due {
            poll.spun(SpinEnd::Vain);
        }
        u32::from(is_due)
    };
    (0..count).map(|_| spin(poll)).sum()
}

/// Goal: where spinning never pays it is tried ever more seldom, down to one wait in 65, and
/// one spin that pays brings it back at once.
#[test]
fn spins_in_vain_become_rare() {
    let mut poll = BusyPoll::new(50_000);
    assert_eq!(vain_spins(&mut poll, 128), 7, "at 0, 2, 5, 10, 19, 36, 69");
    assert_eq!(vain_spins(&mut poll, 65 * 100), 100);
    while !poll.is_due() {}
    poll.spun(SpinEnd::Found);
    assert!(poll.is_due() && poll.is_due(), "it pays: every wait");
    assert_eq!(vain_spins(&mut poll, 2), 1);
}

/// A spin up to a planned moment counted as unproductive: at 2,000 requests a second, `--busy-poll 500` slept through
/// every response.
///
/// Goal: a spin that ends at its deadline changes nothing: neither the next spin nor how rare they have become.
#[test]
fn a_deadline_is_no_spin_in_vain() {
    let mut poll = BusyPoll::new(500_000);
    for _ in 0..10 {
        assert!(poll.is_due());
        poll.spun(SpinEnd::Deadline);
        assert!(poll.is_due());
        poll.spun(SpinEnd::Found);
    }
    poll.spun(SpinEnd::Vain);
    assert!(!poll.is_due() && poll.is_due());
    poll.spun(SpinEnd::Deadline);
    poll.spun(SpinEnd::Vain);
    assert!(!poll.is_due() && !poll.is_due() && poll.is_due());
}

/// Goal: a sleep shorter than a spin is a reason to spin again; a longer one is none.
#[test]
fn short_sleeps_bring_spinning_back() {
    let mut poll = BusyPoll::new(50_000);
    vain_spins(&mut poll, 1_000);
    poll.slept(50_001);
    assert!(!poll.is_due());
    poll.slept(50_000);
    assert!(poll.is_due());
}

/// Goal: a spin ends at its limit or at the deadline, whichever comes first; off is off.
#[test]
fn a_spin_respects_the_deadline() {
    let poll = BusyPoll::new(50_000);
    assert_eq!(poll.end_ns(1_000, None), 51_000);
    assert_eq!(poll.end_ns(1_000, Some(2_000)), 2_000);
    assert_eq!(poll.end_ns(1_000, Some(99_000)), 51_000);
    let mut off = BusyPoll::default();
    assert!(!off.is_on() && !off.is_due());
    off.slept(0);
    assert!(!off.is_due());
}
