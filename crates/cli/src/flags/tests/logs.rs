use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    logs: LogFlags,
}

fn parse(line: &str) -> Result<LogFlags, String> {
    let words = ["serve"].into_iter().chain(line.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    Ok(line.logs)
}

/// Goal: no log unless asked for; the help's defaults are the library's; flags reach it.
#[test]
fn flags_reach_the_log() {
    assert_eq!(parse("").unwrap().access_log(), None);
    let stdout = AccessLogConfig::new(AccessLogTarget::Stdout);
    assert_eq!(parse("--access-log -").unwrap().access_log(), Some(stdout));
    let line = "--access-log a.log --access-log-format json --access-log-queue 64KiB";
    let file = AccessLogConfig {
        target: AccessLogTarget::File("a.log".into()),
        format: AccessLogFormat::Json,
        queue_bytes: 65536,
    };
    assert_eq!(parse(line).unwrap().access_log(), Some(file));
}

/// Goal: contradictory flags are refused with what to write.
#[test]
fn wrong_values_are_named() {
    for (line, part) in [
        (
            "--access-log - --access-log-format xml",
            "combined-extended, combined-upstream or json",
        ),
        ("--access-log - --access-log-queue 1KiB", "64KiB to 1GiB"),
        ("--access-log-format json", "--access-log <FILE|->"),
    ] {
        let error = parse(line).err().unwrap();
        assert!(error.contains(part), "{line}: {error}");
    }
}
