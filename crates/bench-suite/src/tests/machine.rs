use super::*;

#[test]
fn lists_of_cpus_are_read() {
    assert_eq!(
        allowed_cpus("Name:\tx\nCpus_allowed_list:\t0-2,5\n"),
        [0, 1, 2, 5]
    );
    assert_eq!(allowed_cpus("Cpus_allowed_list:\t3\n"), [3]);
    assert!(allowed_cpus("").is_empty());
}
