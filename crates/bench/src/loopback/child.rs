//! The child's side of `bench loopback`: one pair in a process of its own, under the allocator that was
//! preloaded.
//!
//! On the path: `run` starts `millpond bench-child loopback SPEC` and reads a line of JSON for each
//! second and one at the end. That the allocator is in place is proved by the kernel's list, at the end.
//! Absent on purpose: clap, and lines of seconds while heap calls are counted, which would count too.

use super::pair::{self, PairSample, PairSpec};
use crate::child;
use millpond_measure::record::LoadSecond;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The first word for such a child.
pub(crate) const WORD: &str = "loopback";

/// What to run, and under what.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct ChildSpec {
    pub(super) pair: PairSpec,
    /// The allocator's library, which has to be mapped; `None`: no allocator but the C library's
    /// may be.
    pub(super) library: Option<PathBuf>,
    /// What stands in front of the allocator: the counter of heap calls.
    pub(super) front: Option<PathBuf>,
    /// Whether each second is told when it is over.
    pub(super) tells_seconds: bool,
}

/// What a child says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Second(Box<LoadSecond>),
    End(Box<PairSample>),
}

impl ChildSpec {
    /// The words that [`main`] is given back.
    pub(super) fn to_arguments(&self) -> Result<[OsString; 2], String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        Ok([WORD.into(), text.into()])
    }

    fn parse(word: Option<OsString>) -> Result<Self, String> {
        let word = word.ok_or("what to run is missing")?;
        let text = word.to_str().ok_or("what to run is not text")?;
        serde_json::from_str(text).map_err(|error| format!("what to run cannot be read: {error}"))
    }
}

/// What follows `bench-child loopback`.
pub(crate) fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    child::end(ChildSpec::parse(words.next()).and_then(|spec| run(&spec)))
}

fn run(spec: &ChildSpec) -> Result<(), String> {
    child::die_with_parent()?;
    pair::check(&spec.pair)?;
    let sample = pair::run(&spec.pair, &|second| {
        if spec.tells_seconds {
            // A parent that is gone ends this process anyway.
            let _ = say(&Line::Second(second.clone().into()));
        }
    })?;
    child::prove(spec.library.as_deref(), spec.front.as_deref())?;
    say(&Line::End(sample.into()))
}

fn say(line: &Line) -> Result<(), String> {
    let text = serde_json::to_string(line).map_err(|error| error.to_string())?;
    child::say(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_measure::record::PoolSetting;

    /// Goal: what the parent asks for is what the child reads; what cannot be read is named.
    #[test]
    fn words_come_back() {
        let spec = ChildSpec {
            pair: PairSpec {
                connections: 500,
                requests: 2_500_000,
                threads: 1,
                request_bytes: 1_024,
                response_bytes: 740,
                pools: PoolSetting::Off,
                server_driver: "uring".to_owned(),
                client_driver: "epoll".to_owned(),
            },
            library: Some("/lib/libx.so.2".into()),
            front: None,
            tells_seconds: true,
        };
        let [word, text] = spec.to_arguments().unwrap();
        assert_eq!(word, WORD);
        assert_eq!(ChildSpec::parse(Some(text)), Ok(spec));
        assert!(ChildSpec::parse(None).unwrap_err().contains("missing"));
        let unreadable = ChildSpec::parse(Some("{}".into())).unwrap_err();
        assert!(unreadable.contains("cannot be read"), "{unreadable}");
    }
}
