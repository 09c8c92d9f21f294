use super::*;
use proptest::prelude::*;

const STAT: &str = "4242 (a) b (c)) S 7 4240 4240 0 -1 4194304 101 5 9 6 12 34 100 200 20 0 3 0 \
                    162642 3133440 383 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0";

/// Goal: a program that names itself with parentheses cannot shift the fields.
#[test]
fn stat_with_a_hostile_name() {
    let stat = Stat::parse(STAT).unwrap();
    let expected = Stat {
        state: 'S',
        parent: 7,
        process_group: 4240,
        minor_faults: 101,
        major_faults: 9,
        user_ticks: 12,
        system_ticks: 34,
        ended: Ended {
            minor_faults: 5,
            major_faults: 6,
            user_ticks: 100,
            system_ticks: 200,
        },
        threads: 3,
    };
    assert_eq!(stat, expected);
    // PF_EXITING: there is nothing to read of it, though it is no zombie yet.
    let ending = STAT.replace(" 4194304 ", " 4194308 ");
    assert_eq!(Stat::parse(&ending).map(|stat| stat.state), Some('X'));
    assert_eq!(Stat::parse(""), None);
    assert_eq!(Stat::parse("1 (x) S 1 2"), None);
}

#[test]
fn status_lines() {
    let text = "VmHWM:\t    2048 kB\nVmRSS:\t    1644 kB\nvoluntary_ctxt_switches:\t12\n";
    assert_eq!(kilobytes(text, "VmRSS"), Some(1644 * 1024));
    assert_eq!(kilobytes(text, "Vm"), None);
    assert_eq!(number(text, "voluntary_ctxt_switches"), Some(12));
}

#[test]
fn sched_lines() {
    let text = "sh (7, #threads: 1)\n-----\nse.sum_exec_runtime     :      12.000\n\
                se.nr_migrations              :                   12\n";
    assert_eq!(statistic(text, "se.nr_migrations"), Some(12));
    assert_eq!(statistic(text, "se.sum_exec_runtime"), None);
    assert_eq!(statistic(text, "nr_migrations"), None);
}

#[test]
fn maps_lines() {
    let text = "5500-5600 r-xp 00000000 fd:00 12   /usr/bin/a b\n\
                5600-5700 r--p 00001000 fd:00 12   /usr/bin/a b\n\
                5700-5800 rw-p 00000000 00:00 0 \n\
                5800-5900 rw-p 00000000 00:00 0    [heap]\n\
                5900-6000 r-xp 00000000 fd:00 13   /usr/lib/libjemalloc.so.2 (deleted)\n";
    assert_eq!(
        mapped_files(text),
        ["/usr/bin/a b", "/usr/lib/libjemalloc.so.2 (deleted)"]
    );
}

proptest! {
    /// Goal: no text makes a parser fail otherwise than by saying so.
    #[test]
    fn any_text_is_survived(text in "\\PC{0,200}") {
        let _ = Stat::parse(&text);
        let _ = kilobytes(&text, "Rss");
        let _ = mapped_files(&text);
    }
}
