use super::*;
use super::{BenchFlags, What};
use crate::flags::{Cli, Command};
use clap::Parser;

fn config(words: &str) -> Result<LoopbackConfig, String> {
    let words = ["millpond", "bench", "loopback"]
        .into_iter()
        .chain(words.split_whitespace());
    match Cli::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Bench(BenchFlags {
            what: What::Loopback(flags),
        }) => flags.config().map_err(|failure| format!("{failure:?}")),
        other => Err(format!("{other:?}")),
    }
}

/// Goal: the help's defaults are the library's, and those the earlier workload.
#[test]
fn defaults_are_those_of_the_library() {
    let found = config("--seed 5").unwrap();
    let library = LoopbackConfig {
        seed: 5,
        command: found.command.clone(),
        ..LoopbackConfig::new(found.launcher.clone())
    };
    assert_eq!(found, library);
    assert_eq!(
        (found.connections, found.iterations, found.threads),
        (500, 5_000, 1)
    );
    assert_eq!((found.request_bytes, found.response_bytes), (1_024, 740));
}

/// Goal: each flag reaches the field it names.
#[test]
fn flags_reach_the_configuration() {
    let words = "-c 10 -i 2k --threads 3 --pools on,on --allocators glibc,mine=/a.so \
                 --repetitions 7 --driver epoll --client-driver uring --request-bytes 1K \
                 --response-bytes 0 --seed 3";
    let found = config(words).unwrap();
    assert_eq!(
        (found.connections, found.iterations, found.threads),
        (10, 2_000, 3)
    );
    assert_eq!(found.pools, [PoolSetting::On]);
    let allocators = ["glibc", "mine=/a.so"].map(str::to_owned).to_vec();
    assert_eq!(found.allocators, Some(allocators));
    assert_eq!((found.repetitions, found.seed), (7, 3));
    assert_eq!(found.server_driver, DriverChoice::Epoll);
    assert_eq!(found.client_driver, DriverChoice::Uring);
    assert_eq!((found.request_bytes, found.response_bytes), (1_024, 0));
}

/// Goal: what cannot be is refused with the alternative.
#[test]
fn wrong_values_are_named() {
    for (words, part) in [
        ("-c 0", "at least 1"),
        ("-c 1M", "at most 500000"),
        ("-i 0", "at least 1"),
        ("--threads 5000", "at most 1024"),
        ("--pools maybe", "on, off"),
        ("--driver kqueue", "auto, uring or epoll"),
        ("--request-bytes 1G", "at most 16777216"),
        ("--repetitions 0", "at least 1"),
        ("somewhere", "somewhere"),
    ] {
        let error = config(words).unwrap_err();
        assert!(error.contains(part), "{words}: {error}");
    }
}
