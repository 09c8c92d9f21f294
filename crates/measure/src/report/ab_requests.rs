//! ab's table of single requests (`-g`), which gnuplot reads: tabs, whole milliseconds, the fastest
//! request first.
//!
//! What ab writes in local time is UTC here, so that files of two machines can be laid side by
//! side; `seconds` is the same either way.

use crate::units::format_utc;

/// One request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// When it began, since the epoch.
    pub started_unix_s: u64,
    /// Connecting.
    pub connect_us: u64,
    /// From the write to the head of the response.
    pub waiting_us: u64,
    /// All of it.
    pub total_us: u64,
}

/// The table.
#[must_use]
pub fn text(mut rows: Vec<Row>) -> String {
    rows.sort_by_key(|row| row.total_us);
    let mut text = "starttime\tseconds\tctime\tdtime\tttime\twait\n".to_owned();
    for row in rows {
        let rest_us = row.total_us.saturating_sub(row.connect_us);
        let [connect, rest, total, waiting] =
            [row.connect_us, rest_us, row.total_us, row.waiting_us].map(|us| (us + 500) / 1_000);
        let seconds = row.started_unix_s;
        let start = start_time(seconds);
        text += &format!("{start}\t{seconds}\t{connect}\t{rest}\t{total}\t{waiting}\n");
    }
    text
}

/// As C's ctime: `Sun Nov 22 13:07:18 2026`.
fn start_time(unix_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let day = DAYS[(unix_s / 86_400 % 7) as usize];
    // 2026-11-22 13:07:18 UTC
    let utc = format_utc(unix_s);
    let mut words = utc.split_whitespace();
    let (date, time) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let mut date = date.split('-');
    let year = date.next().unwrap_or("");
    let month: usize = date.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let day_of_month = date.next().unwrap_or("");
    let month = MONTHS.get(month.wrapping_sub(1)).copied().unwrap_or("");
    format!("{day} {month} {day_of_month} {time} {year}")
}

#[cfg(test)]
#[path = "tests/ab_requests.rs"]
mod tests;
