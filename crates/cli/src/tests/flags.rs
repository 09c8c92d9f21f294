use super::*;
use clap::CommandFactory;

/// Goal: clap's own consistency check of all flags, and every command's help has examples.
#[test]
fn flags_are_consistent_and_every_command_shows_examples() {
    let mut command = Cli::command();
    command.clone().debug_assert();
    command.build();
    for subcommand in command
        .get_subcommands_mut()
        .filter(|it| it.get_name() != "help")
    {
        let help = subcommand.render_long_help().to_string();
        assert!(help.contains("Examples:"), "{}", subcommand.get_name());
    }
}

/// Goal: numbers that would measure nothing are refused.
#[test]
fn nothing_is_not_a_count() {
    assert_eq!(parse_count("10k"), Ok(10_000));
    assert_eq!(parse_duration_ns("5m"), Ok(300_000_000_000));
    assert_eq!(parse_bytes("1K"), Ok(1024));
    for text in ["0", "-1", "many", ""] {
        assert!(
            parse_count(text).is_err() && parse_duration_ns(text).is_err(),
            "{text}"
        );
    }
}
