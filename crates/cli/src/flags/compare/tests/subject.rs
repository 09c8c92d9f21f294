use super::*;

#[test]
fn cpus_and_pairs() {
    assert_eq!(parse_cpus("2-3,0,3"), Ok(Cpus(vec![0, 2, 3])));
    for text in ["", "3-1", "x", "1,", "0-99999999"] {
        assert!(parse_cpus(text).is_err(), "{text}");
    }
    assert_eq!(parse_pair("A=b=c"), Ok(("A".into(), "b=c".into())));
    assert!(parse_pair("=x").is_err() && parse_pair("x").is_err());
    assert!(parse_signal("KILL").is_err());
    assert_eq!(parse_idle_cpus("awake"), Ok(IdleCpus::Awake));
    assert!(parse_idle_cpus("tired").is_err());
}
