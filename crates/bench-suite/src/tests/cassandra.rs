use super::*;

/// Goal: the version is read out of what each Java says.
#[test]
fn java_versions_are_read() {
    assert_eq!(
        java_major("openjdk version \"17.0.15\" 2025-04-15"),
        Some(17)
    );
    assert_eq!(java_major("openjdk version \"21\" 2023-09-19"), Some(21));
    assert_eq!(java_major("java version \"1.8.0_392\""), Some(1));
    assert_eq!(java_major("openjdk version \"24-ea\""), Some(24));
    assert_eq!(java_major("no such thing"), None);
}

/// Goal: what Maven fetches is what the test searches for.
#[test]
fn pom_and_program_agree() {
    let pom = include_str!("../cassandra/pom.xml");
    assert!(pom.contains(&format!("<version>{VERSION}</version>")));
}
