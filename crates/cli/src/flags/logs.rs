//! Flags of `millpond serve` for what it writes about requests and about itself.

use clap::Args;
use millpond_http::{AccessLogConfig, AccessLogFormat, AccessLogTarget, LogFormat, LogLevel};

use crate::output;

const LOGS: &str = "Logs";

/// A line for each request, and lines about the server.
#[derive(Args, Debug)]
pub(super) struct LogFlags {
    /// Append a line for each request to FILE; - is stdout. SIGHUP opens FILE anew, for logrotate.
    /// A shard never waits for it: what finds no room in the queue is dropped and counted
    #[arg(long, value_name = "FILE|-", help_heading = LOGS)]
    access_log: Option<AccessLogTarget>,
    /// How its lines look: as Apache and nginx write them, or a JSON object each, with duration,
    /// connection and shard
    #[arg(long, value_name = "combined|combined-extended|combined-upstream|json", default_value_t, requires = "access_log", help_heading = LOGS)]
    access_log_format: AccessLogFormat,
    /// Memory of each shard for lines that are not written yet
    #[arg(long, value_name = "SIZE", value_parser = parse_queue, default_value = "1MiB", requires = "access_log", help_heading = LOGS)]
    access_log_queue: usize,
    /// How the lines on stderr look: sentences, or a JSON object each
    #[arg(long, value_name = "text|json", default_value = "text", help_heading = LOGS)]
    log_format: LogFormat,
    /// Which lines stderr gets: this level and what matters more
    #[arg(long, value_name = "error|warn|info|debug", default_value = "info", help_heading = LOGS)]
    log_level: LogLevel,
}

impl LogFlags {
    /// From here on stderr gets what was asked for.
    pub(super) fn configure(&self) {
        if self.log_format == LogFormat::Json {
            output::log_is_json();
        }
        millpond_http::log::configure(self.log_format, self.log_level);
        millpond_http::log::write_panics();
    }

    pub(super) fn access_log(&self) -> Option<AccessLogConfig> {
        self.access_log.clone().map(|target| AccessLogConfig {
            target,
            format: self.access_log_format,
            queue_bytes: self.access_log_queue,
        })
    }
}

/// Less would not hold one long entry of each of a few connections, more is a typo.
fn parse_queue(text: &str) -> Result<usize, String> {
    match super::parse_bytes(text)? {
        bytes @ 0x1_0000..=0x4000_0000 => Ok(bytes as usize),
        _ => Err("it is from 64KiB to 1GiB".to_owned()),
    }
}

#[cfg(test)]
#[path = "tests/logs.rs"]
mod tests;
