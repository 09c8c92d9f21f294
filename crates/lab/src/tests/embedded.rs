use super::*;
use crate::elf::Elf;
use std::os::unix::fs::PermissionsExt;

/// Goal: an object comes out as one that can be preloaded here, in a directory that only
/// this user can list, and goes with it.
#[test]
fn an_object_lives_as_long_as_its_directory() {
    let directory = PrivateDirectory::create().unwrap();
    let mode = fs::metadata(&directory.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o711);
    let object = TRACE.write_into(&directory.path).unwrap();
    let elf = Elf::read(&object).unwrap().unwrap();
    assert!(elf.is_for_this_machine() && elf.is_shared());
    assert!(elf.exports("malloc") && elf.exports("free"));
    assert!(!elf.exports("rust_eh_personality"));
    drop(directory);
    assert!(!object.exists());
}
