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
