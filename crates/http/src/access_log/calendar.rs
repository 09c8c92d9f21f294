//! Moments as a log writes them: always UTC, so that a line means the same everywhere.

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY_S: u64 = 86_400;

/// A moment of the calendar.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Moment {
    pub(crate) year: u64,
    /// From 1.
    pub(crate) month: u64,
    pub(crate) day: u64,
    pub(crate) hour: u64,
    pub(crate) minute: u64,
    pub(crate) second: u64,
    pub(crate) millisecond: u64,
}

impl Moment {
    /// From milliseconds since 1970. Counts years from March, so that the leap day is the last.
    pub(crate) fn of_unix_ms(unix_ms: u64) -> Self {
        let unix_s = unix_ms / 1000;
        let (days, second_of_day) = (unix_s / DAY_S, unix_s % DAY_S);
        // Days since 1 March of the year 0; an era of 400 years has 146,097 of them.
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = match month_from_march {
            0..10 => month_from_march + 3,
            _ => month_from_march - 9,
        };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            millisecond: unix_ms % 1000,
        }
    }

    /// `22/Nov/2026:06:18:36 +0000`
    pub(super) fn write_combined(&self, out: &mut Vec<u8>) {
        two(out, self.day);
        out.push(b'/');
        out.extend_from_slice(MONTHS[self.month as usize - 1].as_bytes());
        out.push(b'/');
        four(out, self.year);
        out.push(b':');
        self.write_time(out);
        out.extend_from_slice(b" +0000");
    }

    /// `2026-11-22T06:18:36.123Z`
    pub(crate) fn write_iso(&self, out: &mut Vec<u8>) {
        four(out, self.year);
        out.push(b'-');
        two(out, self.month);
        out.push(b'-');
        two(out, self.day);
        out.push(b'T');
        self.write_time(out);
        out.push(b'.');
        out.push(b'0' + (self.millisecond / 100) as u8);
        two(out, self.millisecond % 100);
        out.push(b'Z');
    }

    fn write_time(&self, out: &mut Vec<u8>) {
        two(out, self.hour);
        out.push(b':');
        two(out, self.minute);
        out.push(b':');
        two(out, self.second);
    }
}

fn two(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&[b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
}

fn four(out: &mut Vec<u8>, value: u64) {
    two(out, value / 100);
    two(out, value % 100);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(unix_ms: u64) -> String {
        let mut out = Vec::new();
        Moment::of_unix_ms(unix_ms).write_iso(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Goal: the days on which a calendar goes wrong, and both notations of one moment.
    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(iso(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso(1_709_164_800_007), "2024-02-29T00:00:00.007Z");
        assert_eq!(iso(1_735_689_599_090), "2024-12-31T23:59:59.090Z");
        assert_eq!(iso(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        let mut out = Vec::new();
        Moment::of_unix_ms(784_111_777_000).write_combined(&mut out);
        assert_eq!(out, b"06/Nov/1994:08:49:37 +0000");
    }

    /// Goal: every day for 300 years is what another implementation says.
    #[test]
    fn every_day_is_httpdate_s() {
        for day in 0..110_000 {
            let unix_s = day * DAY_S + day % DAY_S;
            let system = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
            let theirs = httpdate::fmt_http_date(system);
            let ours = Moment::of_unix_ms(unix_s * 1000);
            let month = MONTHS[ours.month as usize - 1];
            let (hour, minute, second) = (ours.hour, ours.minute, ours.second);
            let text = format!(
                "{:02} {month} {:04} {hour:02}:{minute:02}:{second:02} GMT",
                ours.day, ours.year
            );
            assert!(theirs.ends_with(&text), "{theirs} {text}");
        }
    }
}
