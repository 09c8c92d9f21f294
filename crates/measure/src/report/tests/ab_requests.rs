use super::*;

#[test]
fn the_table_is_ab_s() {
    let row = |started_unix_s, [connect_us, waiting_us, total_us]: [u64; 3]| RequestRow {
        started_unix_s,
        connect_us,
        waiting_us,
        total_us,
    };
    let rows = vec![
        row(1_795_352_838, [1_499, 2_500, 9_600]),
        row(951_782_400, [0, 400, 499]),
    ];
    assert_eq!(
        request_table(rows),
        "starttime\tseconds\tctime\tdtime\tttime\twait\n\
         Tue Feb 29 00:00:00 2000\t951782400\t0\t0\t0\t0\n\
         Sun Nov 22 13:07:18 2026\t1795352838\t1\t8\t10\t3\n"
    );
}
