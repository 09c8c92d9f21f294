use super::*;

/// Goal: a thread that chose a CPU is on it alone, and numbers go around.
#[test]
fn threads_stay_where_they_are_put() {
    let cpus = Cpus::allowed();
    for number in 0..2 * cpus.allowed.len() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cpus.pin(number);
                let expected = [cpus.allowed[number % cpus.allowed.len()]];
                assert_eq!(Cpus::allowed().allowed, expected);
            });
        });
    }
}
