use super::*;

/// Goal: concurrent calls get results too. The directory had the process's name alone, and one of two threads took data
/// of a later engine for damage, in one test run of sixty.
#[test]
fn all_who_ask_for_the_version_are_told() {
    let answers = std::thread::scope(|scope| {
        let asking = [0; 4].map(|_| scope.spawn(probe_version));
        asking.map(|thread| thread.join().unwrap())
    });
    assert!(answers[0].is_some());
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}
