use super::*;
use std::process::Command;

fn compile(directory: &Path, name: &str, flags: &[&str]) -> std::path::PathBuf {
    let (source, program) = (directory.join("main.c"), directory.join(name));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut compiler = Command::new("cc");
    let status = compiler
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    assert!(status.unwrap().success(), "cc {flags:?}");
    program
}

/// Goal: each kind of program that cannot be served is recognised by its file, and a plain one is not.
#[test]
fn unsuitable_programs_are_told_by_their_files() {
    let directory = tempfile::tempdir().unwrap();
    let of =
        |name: &str, flags: &[&str]| of_program(&compile(directory.path(), name, flags)).unwrap();
    assert_eq!(of("plain", &[]), None);
    assert_eq!(of("static", &["-static"]), Some(Unsuitable::Static));
    assert_eq!(of("static-pie", &["-static-pie"]), Some(Unsuitable::Static));
    let address = Some(Unsuitable::Sanitizer("AddressSanitizer"));
    assert_eq!(of("asan", &["-fsanitize=address"]), address);
    let thread = Some(Unsuitable::Sanitizer("ThreadSanitizer"));
    assert_eq!(of("tsan", &["-fsanitize=thread"]), thread);
    assert_eq!(of("ubsan", &["-fsanitize=undefined"]), None);
    let set_id = compile(directory.path(), "set-id", &[]);
    fs::set_permissions(&set_id, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(of_program(&set_id).unwrap(), Some(Unsuitable::SetId));
    let script = directory.path().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    assert_eq!(of_program(&script).unwrap(), None);
    assert!(of_program(Path::new("/nowhere/program")).is_err());
}

/// Goal: a Go program is called one, whether it is linked statically or not.
#[test]
fn go_programs_are_told() {
    let go = ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"];
    let runs = |go: &&&str| Command::new(go).arg("version").output().is_ok();
    let Some(go) = go.iter().find(runs) else {
        eprintln!("skipped: go is not installed; apt-get install golang-go brings it");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (
        directory.path().join("main.go"),
        directory.path().join("main"),
    );
    fs::write(&source, "package main\nfunc main() { println(1) }\n").unwrap();
    let mut compiler = Command::new(go);
    let cache = directory.path().join("cache");
    compiler
        .env("GOCACHE", cache)
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", "0");
    let status = compiler
        .args(["build", "-ldflags=-s -w", "-o"])
        .arg(&program)
        .arg(&source);
    assert!(status.status().unwrap().success());
    assert_eq!(of_program(&program).unwrap(), Some(Unsuitable::Go));
}
