//! What other load generators call things: flags of wrk, wrk2 and ab that have no other place.
//!
//! Absent on purpose: flags that mean something else here (ab's -t, -s and -T are wrk's), and those
//! that only switch off what a program prints.

use clap::{ArgAction, Args};

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "As in wrk, wrk2 and ab")]
pub(super) struct CompatibleFlags {
    /// A connection for each request, with `Connection: close`: what ab does without -k. It is closed after the
    /// answer, whatever the server does, as with -H 'Connection: close'
    #[arg(long, conflicts_with = "keepalive")]
    no_keepalive: bool,
    /// Keep connections open, as ab does with this; it is done in any case
    #[arg(short = 'k', long)]
    keepalive: bool,
    /// Content-Type of the body, as ab's -T
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Print the latency of whole batches, as wrk2 does with this: from the start of the first of the
    /// requests that left together to the last answer. The three clocks time each request as ever
    #[arg(short = 'B', long = "batch_latency", alias = "batch-latency")]
    pub(super) batch_latency: bool,
    /// Print the version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
}

impl CompatibleFlags {
    /// Header fields that these flags stand for.
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let close = self.no_keepalive.then(|| field("Connection", "close"));
        let content_type = self.content_type.as_deref();
        let content_type = content_type.map(|value| field("Content-Type", value));
        close.into_iter().chain(content_type).collect()
    }

    /// The last request on a connection cannot have others behind it.
    pub(super) fn check(&self, pipeline: u64) -> Result<(), String> {
        if self.no_keepalive && pipeline > 1 {
            return Err(
                "--no-keepalive closes after each request; leave --pipeline out".to_owned(),
            );
        }
        Ok(())
    }
}
