//! Certificates and keys out of files, and which of them is for which name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::validity::{Validity, day_of};

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
        /// The system's error.
        source: io::Error,
    },
    /// The PEM text is invalid.
    #[error("{} is not PEM: {reason}", path.display())]
    NotPem {
        /// Which.
        path: PathBuf,
        /// The reader's error.
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
        "the key in {} is encrypted, and a server cannot ask for its passphrase: write it without one, \
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
        /// The provider's error.
        reason: String,
    },
    /// A certificate that cannot be read.
    #[error("the certificate in {} cannot be read: {reason}", path.display())]
    CertificateUnreadable {
        /// Which.
        path: PathBuf,
        /// The reader's error.
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
        /// The library's error.
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

/// The certificates of a server. The first is for clients that name no host, or another one.
#[derive(Debug)]
pub(super) struct Certificates {
    keys: Vec<Arc<CertifiedKey>>,
    /// Names in lower case, as in the certificates, to indexes in `keys`.
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
            // `*` matches exactly one label (RFC 9525, 6.3).
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

/// Content of a pair of files, whether the two match or not.
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
    // Without readable times nothing is wrong with them.
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
#[path = "tests/certificates.rs"]
mod tests;
