use super::*;

/// Goal: memory that was written shows, up to the byte counts of pages; the peak is not below.
#[test]
fn written_memory_shows() {
    let before = anonymous_bytes();
    let block = vec![1_u8; 32 << 20];
    let grown = anonymous_bytes().saturating_sub(before);
    assert!((31 << 20..40 << 20).contains(&grown), "{grown}");
    assert!(peak_bytes() >= resident_bytes());
    assert!(resident_bytes() >= block.len() as u64);
}
