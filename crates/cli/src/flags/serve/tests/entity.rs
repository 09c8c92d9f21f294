use super::*;
use crate::flags::serve::ServerFlags;
use crate::flags::serve::tests::parse_server;

/// Goal: the help's defaults are the library's.
#[test]
fn defaults_of_the_store_are_the_library_s() {
    let Ok(ServerFlags::Entity(flags)) = parse_server("entity") else {
        panic!("`serve entity` is no server");
    };
    assert_eq!(
        flags.entity_config(),
        EntityConfig::new("millpond-data".into())
    );
}

/// Goal: `--memory` is split as the library does it, and each share can be given apart.
#[test]
fn memory_is_split_unless_told_otherwise() {
    let of = |line: &str| match parse_server(line) {
        Ok(ServerFlags::Entity(flags)) => flags.entity_config(),
        other => panic!("{line}: {other:?}"),
    };
    let split = of("entity --memory 64MiB");
    assert_eq!(
        split,
        EntityConfig::with_memory("millpond-data".into(), 64 << 20)
    );
    let told = of("entity --memory 64MiB --cache 1GiB --memtable 100MiB --compression zstd");
    assert_eq!(told.cache_bytes, 1 << 30);
    assert_eq!(told.block_cache_bytes, 256 << 20);
    assert_eq!(told.memtable_bytes, 100 << 20);
    assert_eq!(told.bytes_in_flight_max, split.bytes_in_flight_max);
    assert_eq!(told.compression, Compression::Zstd);
}

/// Goal: the help about `--sync` and `--store` says what each choice can lose.
#[test]
fn help_says_what_can_be_lost() {
    let mut command = clap::Command::new("entity");
    command = EntityFlags::augment_args(command);
    // Wrapped as wide as the terminal is.
    let help = command.render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Nothing that was acknowledged is lost",
        "acknowledged in the last MS milliseconds",
        "what the kernel had not yet written",
        "refused with 503 until a restart",
        "a write may then have been done or not",
        "the last write wins by the clocks of the servers",
    ] {
        assert!(help.contains(part), "{part} in {help}");
    }
}

/// Goal: what the store cannot do is refused with the flag's name and the alternative.
#[test]
fn wrong_values_are_named() {
    for (line, part) in [
        ("entity --sync sometimes", "interval:MS"),
        ("entity --cache lots", "--cache"),
        ("entity --memory 15MiB", "16MiB or more"),
        ("entity --compression gzip", "zstd"),
        ("entity --store ./data", "cassandra://"),
        ("entity --store cassandra://h", "keyspace"),
        ("entity --store cassandra://h/k --data x", "--data"),
        ("entity --store cassandra://h/k --sync off", "--sync"),
        ("entity --store cassandra://h/k --read-only", "--read-only"),
        ("entity --read-only --accept-loss", "--accept-loss"),
        (
            "entity --store cassandra://u:p@h/k",
            "--store-password-file",
        ),
        (
            "entity --store cassandra://h/k --store-user u",
            "--store-password-file",
        ),
        ("entity --store cassandra://h/k --store-ca c", "--store-tls"),
        ("entity --store-tls", "--store <URL>"),
        (
            "entity --store cassandra://h/k --checkpoints x",
            "--checkpoints",
        ),
    ] {
        let error = parse_server(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}
