use super::*;
use std::process::Command;

/// Two settings of glibc could not be compared: the dynamic linker had put a zero between them.
///
/// Goal: tunables are one variable, whatever stands between them, and no other one becomes a part of them.
#[test]
fn tunables_are_one_variable() {
    let given =
        b"A=1\0GLIBC_TUNABLES=glibc.malloc.arena_max=2\0glibc.malloc.tcache_count=3\0B=glibc.x=1\0";
    let list = variables(given);
    let has = |text: &str| list.contains(&text.as_bytes().to_vec());
    assert!(has(
        "GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.malloc.tcache_count=3"
    ));
    assert!(has("A=1") && has("B=glibc.x=1"));
    assert!(!has("GLIBC_TUNABLES=glibc.malloc.arena_max=2"));
}

/// Goal: a variable is found where it was given, with its value, and nowhere else.
#[test]
fn variables_are_found_where_they_were_given() {
    let mut child = Command::new("/bin/sleep")
        .arg("60")
        .env("MILLPOND_TEST", "a=1")
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    // Until exec it has this process's, and for a moment none.
    let has_begun = || {
        let exe = fs::read_link(format!("/proc/{pid}/exe"));
        let given = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        exe.is_ok_and(|exe| exe.ends_with("sleep")) && is_intact(&given)
    };
    while !has_begun() {
        std::thread::yield_now();
    }
    let given = |pid, name: &str, value: &str| was_given(pid, OsStr::new(name), OsStr::new(value));
    let found = [
        given(pid, "MILLPOND_TEST", "a=1"),
        given(pid, "MILLPOND_TEST", "a=2"),
        given(pid, "MILLPOND", "a=1"),
    ];
    let own = i32::try_from(std::process::id()).unwrap();
    let (now, before) = (present(own), given(own, "MILLPOND_TEST", "a=1"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, [true, false, false]);
    assert!(!before && now.is_some_and(|variables| !variables.is_empty()));
    assert!(!is_intact(b"nginx: worker process\0\0\0") && is_intact(b"\0A=\0"));
}
