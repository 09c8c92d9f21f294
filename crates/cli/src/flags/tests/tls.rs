use super::*;
use clap::Parser;
use millpond_http::TLS_HANDSHAKE_BYTES_MAX;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    tls: TlsFlags,
}

fn parse(line: &str) -> Result<Vec<CertificateFiles>, String> {
    let words = std::iter::once("x").chain(line.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    line.tls.pairs()
}

/// Goal: certificates and keys meet in the order they were given in; the default is the library's.
#[test]
fn pairs_keep_their_order() {
    assert_eq!(parse(""), Ok(vec![]));
    let pairs = parse("--tls-cert a --tls-key b --tls-cert c --tls-key d").unwrap();
    let names: Vec<_> = pairs
        .iter()
        .flat_map(|pair| [&pair.certificate, &pair.key])
        .map(|path| path.display().to_string())
        .collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let line = Line::try_parse_from(["x"]).unwrap();
    assert_eq!(line.tls.tls_max_handshake, TLS_HANDSHAKE_BYTES_MAX as u64);
}

/// Goal: a pair that is none is refused with the name of what is missing.
#[test]
fn half_a_pair_is_refused() {
    for (line, part) in [
        ("--tls-cert a", "--tls-key"),
        ("--tls-key a", "--tls-cert"),
        (
            "--tls-cert a --tls-key b --tls-cert c",
            "2 times and --tls-key 1 times",
        ),
        ("--tls-cert a --tls-key b --tls-max-handshake 10", "1KiB"),
        ("--tls-max-handshake lots", "--tls-max-handshake"),
        ("--tls-client-ca a", "--tls-cert"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}
