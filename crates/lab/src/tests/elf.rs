use super::*;

/// Goal: a normal program of this system is dynamic, for this machine, and has no malloc.
#[test]
fn this_test_is_a_dynamic_program() {
    let elf = Elf::read(&std::env::current_exe().unwrap())
        .unwrap()
        .unwrap();
    assert!(elf.is_for_this_machine());
    assert!(!elf.is_static_program());
    assert!(!elf.exports("malloc"));
    assert!(elf.contains("main"));
    assert!(elf.interpreter().is_some_and(|path| path.is_file()));
    assert!(elf.mentions("malloc") && !elf.mentions("frobnicate"));
    assert!(elf.has_section(".dynsym") && !elf.has_section(".go.buildinfo"));
    assert!(!elf.slots_of("malloc").is_empty() && elf.slots_of("frobnicate").is_empty());
    if cfg!(target_arch = "x86_64") {
        // As Rust builds without being asked for frame pointers.
        let share = elf.frame_pointer_share().unwrap();
        assert!(share < 0.5, "{share}");
    }
}

/// Goal: truncated and foreign files are refused or harmless at every length.
#[test]
fn damaged_files_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged");
    fs::write(&path, b"#!/bin/sh\n").unwrap();
    assert!(Elf::read(&path).unwrap().is_none());
    let whole = fs::read("/bin/sleep").unwrap();
    for keep in [64, 65, 200, 1000, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..keep]).unwrap();
        let elf = Elf::read(&path).unwrap().unwrap();
        assert!(!elf.exports("malloc") && !elf.has_section(".nothing"));
        let _ = (
            elf.slots_of("malloc"),
            elf.interpreter(),
            elf.load_bias(0, 0),
            elf.frame_pointer_share(),
        );
    }
    let mut absurd = whole;
    absurd[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
    absurd[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(&path, &absurd).unwrap();
    let elf = Elf::read(&path).unwrap().unwrap();
    assert!(!elf.contains("main"));
    assert!(elf.is_static_program());
}
