//! Certificates and keys out of files, and which of them is for whom.

use super::validity::{Validity, day_of};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

/// Where a certificate and its key are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    /// PEM: the server's own certificate first, then those that sign it.
    pub certificate: PathBuf,
    /// PEM: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// No file, no permission.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// What looks like PEM is none.
    #[error("{} is not PEM: {reason}", path.display())]
    NotPem {
        /// Which.
        path: PathBuf,
        /// The reader's words.
        reason: String,
    },
    /// No certificate in the file.
    #[error("{} has no certificate: it needs a section -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// Which.
        path: PathBuf,
    },
    /// No key in the file.
    #[error(
        "{} has no private key: it needs one in PEM, as PKCS#8, PKCS#1 or SEC1, not encrypted",
        path.display()
    )]
    NoKey {
        /// Which.
        path: PathBuf,
    },
    /// The key needs a passphrase.
    #[error(
        "the key in {} is encrypted, and nobody is there to ask for its passphrase: write it without, \
         as openssl pkey does",
        path.display()
    )]
    EncryptedKey {
        /// Which.
        path: PathBuf,
    },
    /// A kind of key that cannot be used.
    #[error("the key in {} cannot be used: {reason}", path.display())]
    KeyUnusable {
        /// Which.
        path: PathBuf,
        /// The provider's words.
        reason: String,
    },
    /// A certificate that cannot be read.
    #[error("the certificate in {} cannot be read: {reason}", path.display())]
    CertificateUnreadable {
        /// Which.
        path: PathBuf,
        /// The reader's words.
        reason: String,
    },
    /// They belong to two different certificates.
    #[error(
        "the key in {} is not that of the first certificate in {}: name the pair that was made together",
        key.display(),
        certificate.display()
    )]
    KeyMismatch {
        /// Which certificate.
        certificate: PathBuf,
        /// Which key.
        key: PathBuf,
    },
    /// Not a single pair.
    #[error("TLS needs a certificate and its key")]
    NoPair,
    /// No random numbers for tickets, or no protocol in common with ourselves.
    #[error("TLS cannot be set up: {reason}")]
    SetUp {
        /// The library's words.
        reason: String,
    },
}

/// A certificate that is used although clients will not like it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CertificateWarning {
    /// Its time is over.
    Expired {
        /// Which.
        path: PathBuf,
        /// When, as YYYY-MM-DD.
        day: String,
    },
    /// Its time has not come.
    NotYetValid {
        /// Which.
        path: PathBuf,
        /// When it will, as YYYY-MM-DD.
        day: String,
    },
}

impl fmt::Display for CertificateWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { path, day } => write!(
                formatter,
                "the certificate in {} expired on {day}: clients will refuse it; renew it, then send SIGHUP",
                path.display()
            ),
            Self::NotYetValid { path, day } => write!(
                formatter,
                "the certificate in {} is valid from {day} on: clients will refuse it before; is the clock right?",
                path.display()
            ),
        }
    }
}

/// The certificates of a server. The first is for whoever names nobody, or somebody else.
#[derive(Debug)]
pub(super) struct Certificates {
    keys: Vec<Arc<CertifiedKey>>,
    /// Names in small letters, as they stand in the certificates, to indexes in `keys`.
    by_name: HashMap<String, Vec<usize>>,
}

impl Certificates {
    /// Reads all pairs, or fails at the first that is wrong.
    pub(super) fn load(
        files: &[CertificateFiles],
        provider: &CryptoProvider,
        warnings: &mut Vec<CertificateWarning>,
    ) -> Result<Self, TlsError> {
        if files.is_empty() {
            return Err(TlsError::NoPair);
        }
        let mut certificates = Self {
            keys: Vec::with_capacity(files.len()),
            by_name: HashMap::new(),
        };
        for (index, pair) in files.iter().enumerate() {
            let key = load_pair(pair, provider)?;
            let first = &key.cert[0];
            for name in names_of(first, &pair.certificate)? {
                certificates.by_name.entry(name).or_default().push(index);
            }
            warnings.extend(warning_of(first, &pair.certificate, UnixTime::now()));
            certificates.keys.push(Arc::new(key));
        }
        Ok(certificates)
    }

    /// The first certificate for the name whose key the client can verify, else the first for the
    /// name, else the default.
    fn find(
        &self,
        name: Option<&str>,
        is_verifiable: impl Fn(&CertifiedKey) -> bool,
    ) -> &Arc<CertifiedKey> {
        let exact = name.and_then(|name| self.by_name.get(name));
        let indexes = exact.or_else(|| {
            // `*` stands for exactly one label (RFC 9525, 6.3).
            let (_, parent) = name?.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        });
        let indexes = indexes.map_or(&[0][..], Vec::as_slice);
        let fitting = indexes
            .iter()
            .find(|index| is_verifiable(&self.keys[**index]));
        &self.keys[*fitting.unwrap_or(&indexes[0])]
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let is_verifiable = |key: &CertifiedKey| key.key.choose_scheme(schemes).is_some();
        Some(Arc::clone(self.find(hello.server_name(), is_verifiable)))
    }
}

fn load_pair(pair: &CertificateFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let (chain, key) = read_pair(pair)?;
    let path = &pair.certificate;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::KeyMismatch {
            certificate: path.clone(),
            key: pair.key.clone(),
        },
        Error::InvalidCertificate(error) => TlsError::CertificateUnreadable {
            path: path.clone(),
            reason: format!("{error:?}"),
        },
        error => TlsError::KeyUnusable {
            path: pair.key.clone(),
            reason: error.to_string(),
        },
    })
}

/// A pair for a client, which is checked before it is used.
pub(super) fn load_identity(
    pair: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    load_pair(pair, provider)?;
    read_pair(pair)
}

/// What a pair of files holds, whether the two belong together or not.
fn read_pair(
    pair: &CertificateFiles,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let path = &pair.certificate;
    let text = read(path)?;
    let chain: Result<Vec<CertificateDer<'static>>, pem::Error> =
        CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| not_pem(path, &error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.clone() });
    }
    Ok((chain, load_key(&pair.key)?))
}

fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let path = path.to_path_buf();
        let encrypted = b"ENCRYPTED";
        match error {
            _ if text.windows(encrypted.len()).any(|part| part == encrypted) => {
                TlsError::EncryptedKey { path }
            }
            pem::Error::NoItemsFound => TlsError::NoKey { path },
            error => not_pem(&path, &error),
        }
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_path_buf(),
        source,
    })
}

fn not_pem(path: &Path, error: &pem::Error) -> TlsError {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let reason = match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("a section ends without -----END {}-----", text(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("a section begins with {:?}", text(line))
        }
        error => error.to_string(),
    };
    TlsError::NotPem {
        path: path.to_path_buf(),
        reason,
    }
}

/// The names a certificate is for, in small letters.
fn names_of(certificate: &CertificateDer<'_>, path: &Path) -> Result<Vec<String>, TlsError> {
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|error| {
        TlsError::CertificateUnreadable {
            path: path.to_path_buf(),
            reason: error.to_string(),
        }
    })?;
    let names = parsed.valid_dns_names();
    Ok(names.map(str::to_ascii_lowercase).collect())
}

fn warning_of(
    certificate: &CertificateDer<'_>,
    path: &Path,
    now: UnixTime,
) -> Option<CertificateWarning> {
    // Who cannot read the times sees nothing wrong with them.
    let validity = Validity::of(certificate)?;
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let path = path.to_path_buf();
    if now_s > validity.until_s {
        let day = day_of(validity.until_s);
        return Some(CertificateWarning::Expired { path, day });
    }
    let day = day_of(validity.from_s);
    (now_s < validity.from_s).then_some(CertificateWarning::NotYetValid { path, day })
}

#[cfg(test)]
mod tests {
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

    /// Goal: a certificate whose time is over, or has not come, is used and warned of.
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
}
