use super::*;
use std::fs;

/// The words after the file was read, without those in front of the flags.
fn expand(text: &str, line: &str) -> Result<Vec<String>, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.toml");
    fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    let line = line.replace("FILE", &path);
    let words = ["millpond"].into_iter().chain(line.split_whitespace());
    let name = |text: &str| text.replace(&path, "FILE");
    let line = CommandLine::of(words.map(OsString::from).collect());
    let line = line.map_err(|failure| match failure {
        Failure::Usage(sentence) | Failure::Failed(sentence) => name(&sentence),
    })?;
    line.read().map_err(|refusal| match refusal {
        Refusal::File(Failure::Usage(sentence) | Failure::Failed(sentence)) => name(&sentence),
        Refusal::Words(error) => format!("words: {error}"),
    })?;
    let words = line
        .words
        .iter()
        .skip(1)
        .map(|word| name(word.to_str().unwrap()));
    Ok(words.collect())
}

/// Goal: the file's settings become flags in front of those that are given; what is given, as one
/// word or two, leaves the file's out; a command line without a file is left alone.
#[test]
fn the_command_line_wins() {
    let text = "listen = \"127.0.0.1:1\"\nshards = 2\nno-pin = true\nreuse-port = false\n\
                tls-cert = [\"a\", \"b\"]\ntls-key = [\"c\", \"d\"]\n";
    let all = "--listen=127.0.0.1:1 --shards=2 --no-pin --tls-cert=a --tls-cert=b --tls-key=c \
               --tls-key=d";
    let without_shards = all.replace("--shards=2 ", "");
    for (line, expected) in [
        (
            "serve plaintext --config FILE",
            format!("serve plaintext {all} --config FILE"),
        ),
        (
            "serve plaintext --config=FILE",
            format!("serve plaintext {all} --config=FILE"),
        ),
        (
            "serve plaintext --shards 1 --config FILE",
            format!("serve plaintext {without_shards} --shards 1 --config FILE"),
        ),
        (
            "serve plaintext --config FILE --shards=1",
            format!("serve plaintext {without_shards} --config FILE --shards=1"),
        ),
        (
            "serve plaintext --shards 1",
            "serve plaintext --shards 1".to_owned(),
        ),
    ] {
        assert_eq!(
            expand(text, line).map(|words| words.join(" ")),
            Ok(expected),
            "{line}"
        );
    }
}

/// Goal: `serve --config FILE` takes the server from the file; so does the directory of `files`,
/// unless one is given.
#[test]
fn the_file_says_which_server() {
    let text = "server = \"files\"\ndirectory = \"public\"\n";
    for (line, expected) in [
        ("serve --config FILE", "serve files public --config FILE"),
        (
            "serve files --config FILE",
            "serve files public --config FILE",
        ),
        (
            "serve files --config FILE other",
            "serve files --config FILE other",
        ),
    ] {
        assert_eq!(expand(text, line).unwrap().join(" "), expected);
    }
}

/// Goal: help is shown whatever the file is, and that of `serve` where nothing says which server.
#[test]
fn help_needs_no_file() {
    for line in [
        "serve --config /nowhere --help",
        "serve plaintext --config=/nowhere -h",
        "proxy --config /nowhere --help",
    ] {
        let error = expand("", line).unwrap_err();
        assert!(error.contains("Usage: millpond "), "{line}: {error}");
    }
}

/// A file, the words that name it, how the fault begins, and what it says too.
const FAULTS: &[(&str, &str, &str, &str)] = &[
    (
        "\nlisen = \"x\"",
        "serve plaintext",
        "FILE:2: lisen: ",
        "config example plaintext",
    ),
    (
        "listen = \"nowhere\"",
        "serve plaintext",
        "FILE:1: listen: ",
        "nowhere",
    ),
    (
        "shards = 0",
        "serve plaintext",
        "FILE:1: shards: ",
        "at least 1",
    ),
    (
        "shards = true",
        "serve plaintext",
        "FILE:1: shards: ",
        "a value (N)",
    ),
    (
        "shards = [1]",
        "serve plaintext",
        "FILE:1: shards: ",
        "no list",
    ),
    (
        "no-pin = 1",
        "serve plaintext",
        "FILE:1: no-pin: ",
        "true or false",
    ),
    (
        "\ntls-cert = \"a\"",
        "serve plaintext",
        "FILE: ",
        "--tls-key",
    ),
    (
        "config = \"a\"",
        "serve plaintext",
        "FILE:1: config: ",
        "no such flag",
    ),
    (
        "[limits]\na = 1",
        "serve plaintext",
        "FILE:1: limits: ",
        "no such flag",
    ),
    (
        "server = \"files\"",
        "serve plaintext",
        "FILE:1: server: ",
        "millpond serve files",
    ),
    (
        "server = \"proxy\"",
        "serve",
        "FILE:1: server: ",
        "millpond proxy",
    ),
    ("shards = 1", "serve", "FILE ", "server = "),
    (
        "shards = 1",
        "serve plaintext --driver kqueue",
        "words: ",
        "kqueue",
    ),
];

/// Goal: whatever is wrong with the file is named with its line and key, in one line; what is wrong
/// with the words is clap's to say.
#[test]
fn faults_of_the_file_name_line_and_key() {
    for (text, line, begin, part) in FAULTS {
        let error = expand(text, &format!("{line} --config FILE")).unwrap_err();
        assert!(
            error.starts_with(begin) && error.contains(part),
            "{text:?}: {error}"
        );
        assert!(*begin == "words: " || !error.contains('\n'), "{error}");
    }
}

/// Goal: a proxy's file may have the server's flags beside its own tables, and its own are left to it.
#[test]
fn a_proxy_reads_its_own_part() {
    let text = "listen = \"127.0.0.1:1\"\ntries = 3\n[[upstream]]\naddress = \"a:1\"\n";
    let words = expand(text, "proxy --config FILE").unwrap();
    assert_eq!(words.join(" "), "proxy --listen=127.0.0.1:1 --config FILE");
}
