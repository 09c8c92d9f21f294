use super::*;

#[test]
fn hosts_and_ports_are_told_apart() {
    for (authority, expected) in [
        ("pond", ("pond", None)),
        ("pond:80", ("pond", Some("80"))),
        ("127.0.0.1:8080", ("127.0.0.1", Some("8080"))),
        ("[::1]:81", ("::1", Some("81"))),
        ("[::1]", ("::1", None)),
        ("pond:", ("pond", None)),
    ] {
        assert_eq!(host_and_port(authority), expected, "{authority}");
    }
}
