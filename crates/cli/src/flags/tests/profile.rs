use super::*;
use crate::flags::{Cli, Command};
use clap::Parser;

fn job(words: &[&str]) -> Result<Job, String> {
    let words = ["millpond", "profile"].iter().chain(words);
    match Cli::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Profile(flags) => flags.job().map_err(|failure| match failure {
            Failure::Usage(sentence) | Failure::Failed(sentence) => sentence,
        }),
        other => Err(format!("{other:?}")),
    }
}

/// Goal: the help's defaults are the library's.
#[test]
fn defaults_are_those_of_the_lab() {
    let Ok(Job::Server(config)) = job(&[]) else {
        unreachable!()
    };
    let target = Target::Entity { extra: Vec::new() };
    let library = ProfileConfig::new(target, config.launcher.clone());
    assert_eq!(config.duration, library.duration);
    assert_eq!(config.connections, library.connections);
    assert_eq!(config.out, library.out);
    assert_eq!(
        (config.rounds, config.sample_bytes, config.samples_per_s),
        (library.rounds, library.sample_bytes, library.samples_per_s)
    );
    assert!(config.cpu && config.allocations && config.cost);
    assert_eq!(
        (config.unwind, config.pools),
        (library.unwind, library.pools)
    );
}

/// Goal: each flag reaches the field it names, and the command's own flags are left alone.
#[test]
fn flags_reach_the_configuration() {
    let words = "--allocators glibc,mine=/a.so --connections 16 --rate 2k --duration 3s --rounds 2 \
                 --no-cpu --no-cost --unwind fp --samples-per-s 499 --sample-bytes 64K --out o \
                 --seed 7 --env A=b --url http://127.0.0.1:81/x -- nginx -c x";
    let Ok(Job::Server(config)) = job(&words.split_whitespace().collect::<Vec<_>>()) else {
        unreachable!()
    };
    let allocators = ["glibc", "mine=/a.so"].map(str::to_owned).to_vec();
    assert_eq!(config.allocators, Some(allocators));
    assert_eq!(
        (config.connections, config.rounds, config.seed),
        (16, 2, Some(7))
    );
    assert_eq!(config.rate_per_s, Some(2_000.0));
    assert_eq!(config.duration, Duration::from_secs(3));
    assert_eq!(
        (config.cpu, config.allocations, config.cost),
        (false, true, false)
    );
    assert_eq!(
        (config.unwind, config.samples_per_s),
        (Unwind::FramePointers, 499)
    );
    assert_eq!(
        (config.sample_bytes, config.out.to_str()),
        (65_536, Some("o"))
    );
    assert_eq!(config.options.environment, [("A".into(), "b".into())]);
    let Target::Command { words, requests } = config.target else {
        unreachable!()
    };
    assert_eq!(words, ["nginx", "-c", "x"].map(OsString::from));
    assert_eq!(requests.plan.target.path, "/x");
    let Ok(Job::Process(config)) = job(&["--pid", "12", "--duration", "1s"]) else {
        unreachable!()
    };
    assert_eq!((config.pid, config.duration), (12, Duration::from_secs(1)));
}

/// Goal: contradictions are refused with the alternative.
#[test]
fn wrong_usage_is_named() {
    for (words, part) in [
        (&["--", "nginx"][..], "needs --url"),
        (&["--url", "http://127.0.0.1/"], "--pid"),
        (&["--url", "ftp://x/", "--", "nginx"], "begin with http://"),
        (
            &["--url", "http://127.0.0.1/", "--pools", "on", "--", "x"],
            "leave it out",
        ),
        (&["--pid", "1", "--", "x"], "cannot be used with"),
        (
            &["--pid", "1", "--allocators", "glibc"],
            "cannot be used with",
        ),
        (&["--no-cpu", "--no-allocations"], "cannot be used with"),
        (&["--unwind", "lbr"], "fp (frame pointers)"),
        (&["--sample-bytes", "some"], "--sample-bytes"),
        (&["--port", "1", "--", "x"], "--load-cmd"),
    ] {
        let error = job(words).unwrap_err();
        assert!(error.contains(part), "{words:?}: {error}");
    }
}
