use super::*;

/// Goal: who asks at the same time is answered too. The directory was named by the process alone, and
/// of two threads one took data of a later engine for damage, in one test run of sixty.
#[test]
fn all_who_ask_for_the_version_are_told() {
    let answers = std::thread::scope(|scope| {
        let asking = [0; 4].map(|_| scope.spawn(probe_version));
        asking.map(|thread| thread.join().unwrap())
    });
    assert!(answers[0].is_some());
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}
