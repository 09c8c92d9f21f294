use super::*;

/// Goal: this very process, which has nothing preloaded, passes as plain and fails as another.
#[test]
fn own_process_is_not_under_another_allocator() {
    let own = i32::try_from(std::process::id()).unwrap();
    let plain = Allocator::native("glibc");
    assert_eq!(
        prove(&[own], &plain),
        Ok(Presence {
            pids: vec![own],
            native: None
        })
    );
    let other = Allocator::preloaded("other", "/lib/libother.so".into());
    let sentence = prove(&[own], &other).unwrap_err().to_string();
    assert!(
        sentence.starts_with("allocator not in use: /lib/libother.so"),
        "{sentence}"
    );
    assert_eq!(prove(&[], &plain), Err(PresenceError::NothingServes));
    assert_eq!(
        prove(&[i32::MAX], &plain),
        Err(PresenceError::NothingServes)
    );
}

/// A worker of Apache that its parent ended while it was read had no memory any more, and existed for another moment: a
/// comparison ended with "allocator not in use".
///
/// Goal: a temporary deviation of a process is no error, whether it ends or becomes right; a lasting one is.
#[test]
fn a_process_that_vanishes_is_looked_at_again() {
    let own = i32::try_from(std::process::id()).unwrap();
    let right_at = |right: u32| {
        let mut looks = 0;
        let found = each_living(&[own], |_| {
            looks += 1;
            match looks < right {
                true => Err(PresenceError::NothingServes),
                false => Ok(()),
            }
        });
        found.map(|found| found.len())
    };
    assert_eq!(right_at(5), Ok(1));
    assert_eq!(right_at(u32::MAX), Err(PresenceError::NothingServes));
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let vanishing = i32::try_from(child.id()).unwrap();
    let found = each_living(&[vanishing, own], |pid| {
        if pid == own {
            return Ok(());
        }
        child.kill().unwrap();
        Err(PresenceError::NothingServes)
    });
    assert_eq!(found.map(|found| found.len()), Ok(1));
    child.wait().unwrap();
}

/// Goal: a process that has ended since the list was made is left out, collected by its parent or
/// not: a comparison of a server in the background once failed with "cannot look into process".
#[test]
fn ended_processes_are_left_out() {
    let own = i32::try_from(std::process::id()).unwrap();
    let plain = Allocator::native("glibc");
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let ended = i32::try_from(child.id()).unwrap();
    while process_tree::is_alive(ended) {
        std::thread::yield_now();
    }
    for _ in 0..2 {
        let found = prove(&[ended, own, i32::MAX], &plain).unwrap();
        assert_eq!(found.pids, [own]);
        let error = PresenceError::NothingServes;
        assert_eq!(prove(&[ended], &plain), Err(error.clone()));
        assert_eq!(prove_emulated(&[ended], &plain), Err(error));
        child.wait().unwrap();
    }
}
