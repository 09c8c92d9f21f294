use super::*;

/// Goal: every form is read, with the name that goes into Host and the one in the certificate.
#[test]
fn every_form_is_read() {
    let inet = |text: &str| Endpoint::Addresses(vec![text.parse().unwrap()]);
    let named = |host: &str, port| Endpoint::Name {
        host: host.to_owned(),
        port,
    };
    for (text, place, host, tls_host, weight) in [
        (
            "127.0.0.1:81",
            inet("127.0.0.1:81"),
            "127.0.0.1:81",
            None,
            1,
        ),
        ("[::1]:81,weight=3", inet("[::1]:81"), "[::1]:81", None, 3),
        ("app:80", named("app", 80), "app:80", None, 1),
        ("http://app", named("app", 80), "app", None, 1),
        (
            "https://app.internal/",
            named("app.internal", 443),
            "app.internal",
            Some("app.internal"),
            1,
        ),
        (
            "https://[::1]:8443",
            inet("[::1]:8443"),
            "[::1]:8443",
            Some("::1"),
            1,
        ),
        (
            "unix:/run/a.sock,weight=2",
            inet("unix:/run/a.sock"),
            "localhost",
            None,
            2,
        ),
    ] {
        let found: UpstreamName = text.parse().unwrap();
        assert_eq!(found.name, text.split(',').next().unwrap());
        assert_eq!((found.place, &*found.host), (place, host), "{text}");
        assert_eq!(
            (found.tls_host.as_deref(), found.weight),
            (tls_host, weight),
            "{text}"
        );
    }
}

/// Goal: a mirror is an address and a percentage, all requests without one.
#[test]
fn mirrors_are_read() {
    for (text, share) in [
        ("m:81,percent=5", "5%"),
        ("http://m,percent=0.1%", "0.1%"),
        ("unix:/m.sock", "100%"),
    ] {
        let found: MirrorName = text.parse().unwrap();
        assert_eq!(found.share.to_string(), share, "{text}");
        assert_eq!(found.address.name, text.split(',').next().unwrap());
    }
    for (text, part) in [
        ("m:81,percent=0", "0.0001 to 100"),
        ("m:81,weight=2", "percent=N"),
        ("m", "HOST:PORT"),
    ] {
        let error = text.parse::<MirrorName>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// Goal: an invalid name is refused with what to write.
#[test]
fn nonsense_is_refused() {
    for (text, part) in [
        ("", "HOST:PORT"),
        ("8080", "HOST:PORT"),
        ("app", "HOST:PORT"),
        ("a b:80", "HOST:PORT"),
        ("app:99999", "HOST:PORT"),
        ("ftp://app", "http or https"),
        ("https://unix:/a", "TLS"),
        ("unix:", "unix:PATH"),
        ("app:80,weight=0", "1 to 1000"),
        ("app:80,wait=1", "weight=N"),
    ] {
        let error = text.parse::<UpstreamName>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
