use super::*;

/// Goal: the other process reads exactly what one process writes.
#[test]
fn turns_come_back_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("turns");
    let figures = [
        Figure::median("a_ratio", vec![1.0, 3.0, 2.5]).at_most(2.0),
        Figure::median("b_ratio", vec![0.5]),
    ];
    write(&file, &figures, &json!({ "attack": "a" })).unwrap();
    let (read_figures, detail) = apart_read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(detail["attack"], "a");
    for (written, read) in figures.iter().zip(&read_figures) {
        assert_eq!(written.name, read.name);
        assert_eq!(written.runs, read.runs);
        assert_eq!(written.target, read.target);
        assert!((written.value - read.value).abs() < 1e-12);
    }
    assert_eq!(read_figures.len(), 2);
    assert!(apart_read(&file).is_none());
}
