use super::*;
use crate::tls::TlsFailure;
use rcgen::{CertificateParams, KeyPair};

/// Goal: of several servers each may have a certificate for its address or for any of the names, or for whatever it
/// is if all will do; but never one of another authority.
#[test]
fn nodes_have_addresses_or_names() {
    let certificate_of = |name: &str| {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    };
    let (by_address, by_name) = (certificate_of("10.0.0.7"), certificate_of("b.test"));
    let mut roots = RootCertStore::empty();
    roots.add(by_address.clone()).unwrap();
    roots.add(by_name.clone()).unwrap();
    let mut verifier = Verifier {
        provider: Arc::new(default_provider()),
        roots,
        check: Check::Names(None),
    };
    let listed = |names: &[&str]| {
        let names = names
            .iter()
            .map(|name| ServerName::try_from((*name).to_owned()));
        Check::Names(Some(names.collect::<Result<_, _>>().unwrap()))
    };
    for (names, certificate, address, is_good) in [
        (&["a.test"][..], &by_address, "10.0.0.7", true),
        (&["a.test"], &by_address, "10.0.0.8", false),
        (&["a.test", "b.test"], &by_name, "10.0.0.7", true),
        (&["a.test"], &by_name, "10.0.0.7", false),
        (&[], &by_name, "10.0.0.7", false),
    ] {
        verifier.check = listed(names);
        let found = verify(&verifier, certificate, address);
        let expected = if is_good {
            Ok(())
        } else {
            Err(TlsFailure::CertificateName)
        };
        assert_eq!(found, expected, "{names:?} {address}");
    }
    verifier.check = Check::Names(None);
    assert_eq!(verify(&verifier, &by_name, "10.0.0.7"), Ok(()));
    verifier.roots = RootCertStore::empty();
    for check in [Check::Names(None), listed(&["b.test"])] {
        verifier.check = check;
        let found = verify(&verifier, &by_name, "10.0.0.7");
        assert_eq!(found, Err(TlsFailure::CertificateAuthority));
    }
}

fn verify(
    verifier: &Verifier,
    certificate: &CertificateDer<'_>,
    address: &str,
) -> Result<(), TlsFailure> {
    let address = ServerName::try_from(address).unwrap();
    let verified = verifier.verify_server_cert(certificate, &[], &address, &[], UnixTime::now());
    // As the driver of others gets it.
    verified.map(drop).map_err(|error| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        TlsFailure::of_io_error(&error).unwrap()
    })
}
