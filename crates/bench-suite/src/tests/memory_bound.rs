use super::*;

/// Goal: a scan that was over after one reading is not reported to have grown by all resident
/// memory, as a smoke run once did; one that grew at its end is.
#[test]
fn growth_takes_samples_of_every_third() {
    assert_eq!(growth_bytes(&[]), None);
    assert_eq!(growth_bytes(&[48_955_392]), None);
    assert_eq!(growth_bytes(&[7; 14]), None);
    assert_eq!(growth_bytes(&[7; 15]), Some(0));
    let grown = [[1; 5], [5; 5], [9; 5]].concat();
    assert_eq!(growth_bytes(&grown), Some(4));
}
