use super::*;
use rcgen::{CertificateParams, KeyPair};

struct Made {
    directory: tempfile::TempDir,
}

impl Made {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn pair(&self, name: &str, names: &[&str], until: i32) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        CertificateFiles {
            certificate: self.write(&format!("{name}.crt"), &certificate.pem()),
            key: self.write(&format!("{name}.key"), &key.serialize_pem()),
        }
    }
}

fn load(files: &[CertificateFiles]) -> Result<(Certificates, Vec<String>), String> {
    let mut warnings = Vec::new();
    let provider = rustls::crypto::ring::default_provider();
    let certificates = Certificates::load(files, &provider, &mut warnings);
    let warnings = warnings.iter().map(ToString::to_string).collect();
    certificates
        .map(|certificates| (certificates, warnings))
        .map_err(|error| error.to_string())
}

/// Goal: a name finds its own certificate, then a wildcard's, then the default; among several
/// for a name the one that the client can verify.
#[test]
fn names_find_their_certificate() {
    let made = Made::new();
    let files = [
        made.pair("default", &["default.test"], 2100),
        made.pair("a", &["a.test", "*.wild.test"], 2100),
        made.pair("b", &["B.test", "exact.wild.test"], 2100),
        made.pair("a2", &["a.test"], 2100),
    ];
    let (certificates, warnings) = load(&files).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let index_of = |name: Option<&str>, refused: Option<usize>| {
        let is_fine = |key: &CertifiedKey| {
            refused.is_none_or(|index| key.cert != certificates.keys[index].cert)
        };
        let found = certificates.find(name, is_fine);
        let mut keys = certificates.keys.iter();
        keys.position(|key| Arc::ptr_eq(key, found)).unwrap()
    };
    for (name, index) in [
        (None, 0),
        (Some("default.test"), 0),
        (Some("nobody.test"), 0),
        (Some("a.test"), 1),
        (Some("x.wild.test"), 1),
        (Some("x.y.wild.test"), 0),
        (Some("wild.test"), 0),
        (Some("b.test"), 2),
        (Some("exact.wild.test"), 2),
        (Some("test"), 0),
        (Some(""), 0),
    ] {
        assert_eq!(index_of(name, None), index, "{name:?}");
    }
    assert_eq!(index_of(Some("a.test"), Some(1)), 3, "the one that fits");
    assert_eq!(
        index_of(Some("b.test"), Some(2)),
        2,
        "better than a wrong name"
    );
}

/// Goal: every mistake is named with the file and what to do.
#[test]
fn mistakes_are_named() {
    let made = Made::new();
    let good = made.pair("good", &["a.test"], 2100);
    let other = made.pair("other", &["b.test"], 2100);
    let absent = made.directory.path().join("absent.pem");
    let empty = made.write("empty.pem", "");
    let cut = made.write("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let base64 = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    let base64 = made.write("base64.pem", base64);
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let junk = made.write("junk.pem", junk);
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let key = made.write("junk.key", key);
    let locked = key_text("ENCRYPTED PRIVATE KEY");
    let locked = made.write("locked.key", &locked);
    for (certificate, key, parts) in [
        (&absent, &good.key, ["cannot read", "absent.pem"]),
        (&good.certificate, &absent, ["cannot read", "absent.pem"]),
        (&empty, &good.key, ["empty.pem", "BEGIN CERTIFICATE"]),
        (&good.key, &good.key, ["good.key", "BEGIN CERTIFICATE"]),
        (&good.certificate, &empty, ["empty.pem", "no private key"]),
        (
            &good.certificate,
            &good.certificate,
            ["good.crt", "no private key"],
        ),
        (&cut, &good.key, ["cut.pem", "END CERTIFICATE"]),
        (&base64, &good.key, ["base64.pem", "not PEM"]),
        (&junk, &good.key, ["junk.pem", "cannot be read"]),
        (&good.certificate, &key, ["junk.key", "cannot be used"]),
        (&good.certificate, &locked, ["locked.key", "passphrase"]),
        (&good.certificate, &other.key, ["other.key", "good.crt"]),
    ] {
        let files = [CertificateFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        }];
        let error = load(&files).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    assert!(load(&[]).unwrap_err().contains("needs a certificate"));
    // One wrong pair among good ones is still wrong.
    let mixed = CertificateFiles {
        key: good.key.clone(),
        ..other.clone()
    };
    assert!(load(&[good, mixed]).is_err());
}

fn key_text(kind: &str) -> String {
    format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n")
}

/// Goal: a certificate that has expired, or is not valid yet, is used with a warning.
#[test]
fn times_are_warned_of() {
    let made = Made::new();
    let old = made.pair("old", &["a.test"], 2020);
    let (_, warnings) = load(std::slice::from_ref(&old)).unwrap();
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(
        warning.contains("old.crt") && warning.contains("2020-01-01"),
        "{warning}"
    );
    let der = CertificateDer::from_pem_file(&old.certificate).unwrap();
    let early = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1));
    let warning = warning_of(&der, &old.certificate, early).unwrap();
    assert!(warning.to_string().contains("valid from"), "{warning}");
}
