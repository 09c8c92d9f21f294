use super::*;

#[test]
fn names_become_file_names() {
    assert_eq!(file_name("mimalloc with pools"), "mimalloc-with-pools");
    assert_eq!(
        file_name("native (jemalloc) (again)"),
        "native-jemalloc-again"
    );
    assert_eq!(file_name("../x"), "x");
}
