//! A line for each request, in the order of writing, for who wants to see what percentiles hide: which
//! requests were slow, when, and what else happened then.
//!
//! Comma-separated, under a line of names; times are nanoseconds, a field that does not apply is
//! empty. New columns come at the end.

use std::fmt::Write;

/// One request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// When it was written, since the epoch.
    pub written_unix_ns: u64,
    /// From when it was due until it was written; 0 in a closed loop.
    pub slip_ns: u64,
    /// Connecting, before the write, if that was for it.
    pub connect_ns: u64,
    /// From the write to the head of the answer.
    pub waiting_ns: u64,
    /// From the write to the last byte.
    pub service_ns: u64,
    /// From the write to the last byte's arrival in the kernel, of a sample.
    pub kernel_service_ns: Option<u64>,
}

/// The table.
#[must_use]
pub fn text(mut rows: Vec<Row>) -> String {
    rows.sort_by_key(|row| row.written_unix_ns);
    let names = "written_unix_ns,slip_ns,connect_ns,waiting_ns,service_ns,kernel_service_ns\n";
    let mut text = names.to_owned();
    for row in rows {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{},{},{},{},{},",
            row.written_unix_ns, row.slip_ns, row.connect_ns, row.waiting_ns, row.service_ns
        );
        if let Some(span_ns) = row.kernel_service_ns {
            let _ = write!(text, "{span_ns}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
#[path = "tests/requests.rs"]
mod tests;
