//! The user's own load program in the place of ours, and what its output says.

use crate::flags::parse_duration_ns;
use clap::Args;
use millpond_lab::LoadCommand;
use millpond_lab::metric::Metric;
use std::time::Duration;

// No doc comment: clap would show it as what the command does.
#[derive(Args, Debug)]
#[command(next_help_heading = "Your load, for servers that do not speak HTTP")]
pub(in crate::flags) struct LoadCommandFlags {
    /// A shell command that loads the server, the same work each time; it finds MILLPOND_HOST and
    /// MILLPOND_PORT in its environment
    #[arg(long, value_name = "CMD", requires = "command")]
    load_cmd: Option<String>,
    /// What its output says; repeatable: `NAME[UNIT,higher|lower]=regex:PATTERN` or json:PATH. throughput,
    /// `p50[ms]` and `p99[ms]` answer the questions, requests=N divides costs, any other name needs its
    /// unit and direction. The first group of the pattern counts, of its last match
    #[arg(long, value_name = "METRIC", value_parser = Metric::parse, requires = "load_cmd")]
    load_metric: Vec<Metric>,
    /// When it is given up
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "2m")]
    load_within: u64,
    /// How often it runs in each run before the time that counts, for servers that warm up
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000), default_value = "0", requires = "load_cmd")]
    load_warm_up: u32,
    /// Where your server listens, on 127.0.0.1, in the place of --url
    #[arg(
        long,
        value_name = "PORT",
        requires = "load_cmd",
        conflicts_with = "url"
    )]
    pub(in crate::flags) port: Option<u16>,
}

impl LoadCommandFlags {
    pub(in crate::flags) const fn is_given(&self) -> bool {
        self.load_cmd.is_some()
    }

    pub(in crate::flags) fn load_command(&self) -> Option<LoadCommand> {
        self.load_cmd.as_ref().map(|line| LoadCommand {
            line: line.clone(),
            metrics: self.load_metric.clone(),
            timeout: Duration::from_nanos(self.load_within),
            warm_ups: self.load_warm_up,
        })
    }
}
