use super::*;
use crate::flags::{Cli, Command};
use clap::Parser;

fn config(words: &str) -> Result<BenchConfig, String> {
    let words = ["millpond", "bench", "pools"]
        .into_iter()
        .chain(words.split_whitespace());
    match Cli::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Bench(BenchFlags {
            what: What::Pools(flags),
        }) => flags.config().map_err(|failure| format!("{failure:?}")),
        other => Err(format!("{other:?}")),
    }
}

/// Goal: the help's defaults are the library's, and quick is less of everything.
#[test]
fn defaults_are_those_of_the_library() {
    let found = config("").unwrap();
    assert_eq!((found.iterations, found.repetitions), (100_000, 5));
    assert_eq!(found.programs, Program::ALL);
    assert_eq!((found.allocators, found.flamegraph), (None, None));
    let quick = config("--quick").unwrap();
    assert_eq!((quick.iterations, quick.repetitions), (20_000, 3));
    assert!(quick.idle_seconds < found.idle_seconds);
}

/// Goal: each flag reaches the field it names.
#[test]
fn flags_reach_the_configuration() {
    let words = "--programs churn,pair-batch --allocators glibc,mine=/a.so --iterations 2k \
                 --repetitions 7 --seed 3 --flamegraph a.svg --quick";
    let config = config(words).unwrap();
    assert_eq!(config.programs, [Program::Churn, Program::PairBatch]);
    let allocators = ["glibc", "mine=/a.so"].map(str::to_owned).to_vec();
    assert_eq!(config.allocators, Some(allocators));
    assert_eq!(
        (config.iterations, config.repetitions, config.seed),
        (2_000, 7, 3)
    );
    assert_eq!(config.flamegraph, Some(PathBuf::from("a.svg")));
}

/// Goal: the help names every program, and a wrong one gives the list of them.
#[test]
fn programs_are_named() {
    let error = config("--programs frobnicate").unwrap_err();
    let help = config("--help").unwrap_err();
    for program in Program::ALL {
        assert!(error.contains(program.name()), "{error}");
        assert!(help.contains(program.name()), "{help}");
    }
    for words in ["--iterations 0", "--repetitions 0", "--repetitions 10G"] {
        assert!(config(words).is_err(), "{words}");
    }
}
