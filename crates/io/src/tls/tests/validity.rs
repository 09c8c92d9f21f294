use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

/// Goal: known days, at the ends of leap years and of the calendar's exceptions.
#[test]
fn days_are_those_of_the_calendar() {
    for (year, month, day, days) in [
        (1970, 1, 1, 0),
        (1970, 12, 31, 364),
        (2000, 2, 29, 11_016),
        (2000, 3, 1, 11_017),
        (2026, 11, 22, 20_779),
        (2100, 3, 1, 47_541),
    ] {
        assert_eq!(days_since_1970(year, month, day), Some(days));
        let text = format!("{year}-{month:02}-{day:02}");
        assert_eq!(day_of(days * 86_400 + 5), text);
    }
}

/// Goal: the times of a real certificate, before and after 2050, where the encoding changes.
#[test]
fn times_of_certificates_are_found() {
    for (from, until) in [(1999, 2010), (2024, 2049), (2026, 2051), (2060, 4096)] {
        let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 2, 3);
        params.not_after = rcgen::date_time_ymd(until, 12, 31);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let validity = Validity::of(certificate.der()).unwrap();
        assert_eq!(day_of(validity.from_s), format!("{from}-02-03"));
        assert_eq!(day_of(validity.until_s), format!("{until}-12-31"));
    }
}

proptest! {
    /// Goal: no bytes whatever make the reader panic, least of all a certificate cut or changed.
    #[test]
    fn no_bytes_panic(
        noise in prop::collection::vec(any::<u8>(), 0..64),
        cut in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
            let params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
            let key = rcgen::KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().der().to_vec()
        });
        let _ = Validity::of(&noise);
        let mut der = WHOLE.clone();
        let cut = cut.index(der.len());
        prop_assert_eq!(Validity::of(&der[..cut]), None);
        let at = at.index(der.len());
        der[at] = byte;
        let _ = Validity::of(&der);
        let _ = Validity::of(&der[..cut]);
    }
}
