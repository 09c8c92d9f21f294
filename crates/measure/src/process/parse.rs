//! The kernel's text formats (proc_pid_stat(5), proc_pid_status(5), proc_pid_maps(5)).

/// Of the flags in `/proc/PID/stat`: the process is ending, and its memory can no longer be read.
const PF_EXITING: u64 = 0x4;

/// The fields used of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stat {
    /// As the kernel writes it; `X` (dead) also for a process that is on its way there.
    pub(super) state: char,
    pub(super) parent: u32,
    pub(super) process_group: u32,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) user_ticks: u64,
    pub(super) system_ticks: u64,
    /// Of children that have ended and were waited for, and of theirs.
    pub(super) ended: Ended,
    pub(super) threads: u64,
}

/// What a process has inherited from children that it waited for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Ended {
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) user_ticks: u64,
    pub(super) system_ticks: u64,
}

impl Stat {
    /// `None` if fields are missing. The name in parentheses may itself hold blanks and
    /// parentheses, so the last closing one ends it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text[text.rfind(')')? + 1..]
            .split_ascii_whitespace()
            .collect();
        // Field 3 of the manual page (state) is the first after the name.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let is_exiting = number(9)? & PF_EXITING != 0;
        let state = fields.first()?.chars().next()?;
        Some(Self {
            state: if is_exiting { 'X' } else { state },
            parent: number(4)? as u32,
            process_group: number(5)? as u32,
            minor_faults: number(10)?,
            major_faults: number(12)?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            ended: Ended {
                minor_faults: number(11)?,
                major_faults: number(13)?,
                user_ticks: number(16)?,
                system_ticks: number(17)?,
            },
            threads: number(20)?,
        })
    }
}

/// The value after `name:` in bytes, for lines such as `VmRSS:    1644 kB`.
pub(super) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = line_value(text, name)?.strip_suffix("kB")?;
    value.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The value after `name:` as it stands.
pub(super) fn number(text: &str, name: &str) -> Option<u64> {
    line_value(text, name)?.parse().ok()
}

/// The value of a line of `/proc/PID/sched`, such as `se.nr_migrations   :    12`.
pub(super) fn statistic(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == name).then(|| value.trim().parse().ok())?
    })
}

fn line_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// What a line of `/proc/PID/maps` maps: a path, `[heap]`, or nothing.
fn mapped(line: &str) -> &str {
    // address perms offset dev inode path; the path is the rest of the line, blanks included.
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_start();
        rest = &rest[rest.find(' ').unwrap_or(rest.len())..];
    }
    rest.trim_start()
}

/// Paths in the sixth column of `/proc/PID/maps` that are files, each once.
pub(super) fn mapped_files(text: &str) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for line in text.lines() {
        let path = mapped(line);
        if path.starts_with('/') && !files.iter().any(|known| known == path) {
            files.push(path.to_owned());
        }
    }
    files
}

#[cfg(test)]
mod tests {
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
}
