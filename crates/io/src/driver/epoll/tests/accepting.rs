use super::*;
use crate::listener::ListenOptions;
use millpond_mempool::PoolMode;

/// A watch that could not be removed made every later attempt to add it fail, and nothing was accepted again.
///
/// Goal: accepting goes on after a pause in which the listener stayed watched.
#[test]
fn a_listener_that_stayed_watched_is_accepted_from_again() {
    let mut driver = EpollDriver::new(PoolMode::On).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    driver
        .start_accepting(Listener::bind(&address, ListenOptions::default()).unwrap())
        .unwrap();
    let is_paused = |driver: &mut EpollDriver| driver.accept_state().unwrap().is_paused;
    driver.accept_state().unwrap().is_paused = true;
    driver.resume_accepting();
    assert!(!is_paused(&mut driver));
    driver.pause_accepting();
    assert!(is_paused(&mut driver));
    driver.resume_accepting();
    assert!(!is_paused(&mut driver));
}
