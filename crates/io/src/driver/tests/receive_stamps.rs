use super::*;

/// Goal: one receive in so many is stamped, a new number counts from now on, and 0 is none.
#[test]
fn one_in_so_many_is_due() {
    let mut stamps = ReceiveStamps::default();
    assert!(!stamps.turn() && !stamps.is_on());
    stamps.set_every(3);
    let due: Vec<bool> = (0..7).map(|_| stamps.turn()).collect();
    assert_eq!(due.iter().filter(|&&is_due| is_due).count(), 3, "{due:?}");
    stamps.set_every(1);
    assert!(stamps.turn() && stamps.turn());
    stamps.set_every(0);
    assert!(!stamps.turn());
}

/// Goal: no stamp is not the beginning of time.
#[test]
fn zero_is_no_stamp() {
    let stamp = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
    assert_eq!(real_ns_of(&stamp(0, 0)), None);
    assert_eq!(real_ns_of(&stamp(-1, 5)), None);
    assert_eq!(real_ns_of(&stamp(2, 5)), Some(2 * NS_PER_S + 5));
}

/// Goal: now is now on both clocks.
#[test]
fn the_clocks_agree_about_now() {
    let before_ns = monotonic_ns();
    let real = clock_gettime(ClockId::Realtime);
    let real_ns = real.tv_sec.cast_unsigned() * NS_PER_S + real.tv_nsec.cast_unsigned();
    let converted_ns = monotonic_of_real(real_ns);
    let after_ns = monotonic_ns();
    // The kernel rounds the two clocks each for itself.
    assert!(
        (before_ns - 1_000..=after_ns).contains(&converted_ns),
        "{before_ns} {converted_ns} {after_ns}"
    );
}
