use super::*;

/// Calls `look` with every command and the words that lead to it.
fn each(command: &Command, path: &str, look: &mut impl FnMut(&str, Command)) {
    look(path, command.clone());
    for inner in command.get_subcommands() {
        if inner.get_name() != "help" {
            each(inner, &format!("{path} {}", inner.get_name()), look);
        }
    }
}

/// Goal: the short and the long help of every command fit 80 columns, and what is written by hand
/// below them is not broken again.
#[test]
fn help_fits_a_terminal() {
    let mut count = 0;
    let mut look = |path: &str, mut command: Command| {
        count += 1;
        let after = command.get_after_help().map(ToString::to_string);
        let pages = [
            command.render_help().to_string(),
            command.render_long_help().to_string(),
        ];
        for line in pages.iter().flat_map(|page| page.lines()) {
            assert!(line.chars().count() <= WIDTH, "{path}: {line}");
        }
        for line in after.iter().flat_map(|text| text.lines()) {
            let is_whole = pages.iter().any(|page| page.contains(line));
            assert!(is_whole, "{path} breaks: {line}");
            assert!(line.chars().count() <= WIDTH, "{path}: {line}");
        }
    };
    let mut command = command();
    command.build();
    each(&command, "millpond", &mut look);
    assert!(count > 15, "{count}");
}

/// Goal: a default stands once, behind the words about its flag, in both helps and with a long text
/// in front of the rest of it.
#[test]
fn defaults_stand_behind_the_words() {
    let words = Cli::command().mut_subcommand("bench", |it| {
        it.arg(
            Arg::new("speed")
                .long("speed")
                .help("How fast")
                .long_help("How fast\n\nFaster is better.")
                .default_value("7"),
        )
    });
    let words = arranged(words);
    let bench = words.find_subcommand("bench").unwrap();
    let short = bench.clone().render_help().to_string();
    assert_eq!(short.matches("default").count(), 1, "{short}");
    assert!(short.contains("How fast [default: 7]"), "{short}");
    let long = bench.clone().render_long_help().to_string();
    assert_eq!(long.matches("default").count(), 1, "{long}");
    assert!(long.contains("How fast [default: 7]\n"), "{long}");
    assert!(long.contains("Faster is better."), "{long}");
}

/// Goal: a reference page has usage, headings, names, all of the long help, the default, the values, links to what is below
/// and the examples; and what would be markup is none.
#[test]
fn a_page_says_all_of_the_help() {
    let speed = Arg::new("speed")
        .short('s')
        .long("speed")
        .value_name("N")
        .default_value("7");
    let speed = speed
        .help("How *fast*")
        .long_help("How *fast*\n\nSee `a*b*`.");
    let mode = Arg::new("mode")
        .long("mode")
        .help_heading("Modes")
        .value_name("M");
    let mode = mode.value_parser(["on", "off"]).help("Which <one>");
    let run = Command::new("run")
        .about("Do it")
        .after_help("Examples:\n  tool run\n\nMore.");
    let run = run
        .args([speed, mode])
        .arg(Arg::new("file").value_name("FILE").help("What"));
    let hidden = Command::new("secret").hide(true);
    let mut tool = arranged(
        Command::new("tool")
            .about("A tool")
            .subcommands([run, hidden]),
    );
    tool.build();
    let mut pages = Vec::new();
    collect_pages(&tool, &mut pages);
    let names: Vec<&str> = pages.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["README.md", "run.md"]);
    assert!(
        pages[0].1.contains("- [`tool run`](run.md): Do it\n"),
        "{}",
        pages[0].1
    );
    let (_, page) = pages[1].1.split_once("# `tool run`").unwrap();
    let expected = "\n\nDo it\n\n```text\nUsage: tool run [OPTIONS] [FILE]\n```\n\n## Arguments\n\n- `FILE`: What\n\n\
                    ## Flags\n\n- `-s`, `--speed N`: How \\*fast\\*. Default: 7\n\n  See `a*b*`.\n\n\
                    ## Modes\n\n- `--mode M`: Which \\<one>\n  - `on`\n  - `off`\n\n\
                    ## Examples\n\n```\n  tool run\n\nMore.\n```\n";
    assert_eq!(page, expected);
}

/// Goal: a server's own flags come before the common ones, and a command's arguments stand above its flags.
#[test]
fn what_matters_most_comes_first() {
    let mut command = command();
    command.build();
    for (words, first, second) in [
        #[cfg(feature = "entity")]
        (&["serve", "entity"][..], "--data", "--listen"),
        (&["serve", "files"][..], "--cache", "--listen"),
        (&["serve", "files"], "<DIR>\n", "--cache"),
        (&["proxy"], "--upstream <", "--listen"),
        (&["load"], "[URL]...\n", "--threads"),
        (&["load"], "[ARG]...\n", "--threads"),
    ] {
        let mut found = &mut command;
        for word in words {
            found = found.find_subcommand_mut(word).unwrap();
        }
        let help = found.render_long_help().to_string();
        let (_, body) = help.split_once("Usage:").unwrap();
        let at = |part: &str| {
            body.find(part)
                .unwrap_or_else(|| panic!("{part} in {body}"))
        };
        assert!(at(first) < at(second), "{words:?}: {body}");
    }
}

/// Goal: `load -h` fits a screen of 40 lines at 80 columns, with the usual flags and nothing of them misspelt; `--help` has all.
#[test]
fn short_help_of_load_fits_a_screen() {
    let mut command = super::command();
    command.build();
    let load = command.find_subcommand_mut("load").unwrap();
    let short = load.render_help().to_string();
    let long = load.render_long_help().to_string();
    assert!(short.lines().count() <= 40, "{short}");
    for (name, help) in super::LOAD_FLAGS_SHORT {
        assert!(
            short.contains(&format!("--{name} ")) || short.contains(&format!("--{name}\n")),
            "{name}: {short}"
        );
        assert!(short.contains(help), "{help}: {short}");
    }
    assert!(!short.contains("--ycsb") && long.contains("--ycsb"));
    assert!(long.contains("millpond load --ycsb") && !short.contains("--put --keys"));
}
