use super::*;

fn listed(partitions: usize, list: i32, id_bytes: usize) -> Vec<Listed> {
    let ids = vec![(vec![0; id_bytes], 10); list as usize];
    let is_whole = false;
    vec![Listed { ids, is_whole }; partitions]
}

/// All partitions listed 256 ids whatever their length: of the longest 16 MiB for a single range read,
/// and where there are most partitions a GiB.
///
/// Goal: a listing stays small, however long ids are and however many partitions there are, unless each lists a single
/// one; short ids of few partitions are listed by the hundred.
#[test]
fn lists_stay_small() {
    for partitions in [1, 3, 64, 256, 1024, 4096] {
        for id_bytes in [1, 20, 100, ID_BYTES_MAX] {
            let mut list = LIST_FIRST.min(list_max(partitions, ID_BYTES_MAX));
            for _ in 0..5 {
                let bytes = usize::from(partitions) * list as usize * id_bytes;
                assert!(
                    bytes <= LIST_BYTES_MAX || list == 1,
                    "{partitions}, {id_bytes}: {list}"
                );
                list = list_next(list, &listed(partitions.into(), list, id_bytes));
                assert!((1..=LIST_MAX).contains(&list));
            }
        }
    }
    assert_eq!(LIST_FIRST.min(list_max(16, ID_BYTES_MAX)), LIST_FIRST);
    assert_eq!(list_next(64, &listed(64, 64, 20)), LIST_MAX);
    assert_eq!(list_next(64, &[]), LIST_MAX);
}
