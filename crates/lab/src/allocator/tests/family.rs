use super::*;
use crate::allocator::{Allocator, discover};

#[test]
fn library_names() {
    let name = |path: &str| name_of_library(Path::new(path));
    assert_eq!(name("/usr/lib/libjemalloc.so.2"), Some("jemalloc"));
    assert_eq!(
        name("/usr/lib/libtcmalloc_minimal.so.4.5.10"),
        Some("tcmalloc")
    );
    assert_eq!(name("/usr/lib/libc.so.6"), None);
}

/// Goal: what is installed is recognised under its own name, and, where the object names itself, under any.
#[test]
fn installed_allocators_are_recognised() {
    let mut recognised = 0;
    for Allocator { name, library, .. } in discover() {
        let Some(library) = library else { continue };
        let elf = Elf::read(&library).unwrap().unwrap();
        let found = of_object("mine", &library, &elf).unwrap_or_else(|| panic!("{name}"));
        assert!(name.starts_with(found.name), "{name}: {}", found.name);
        let renamed = of_object("mine", Path::new("/a/x.so"), &elf);
        // Objects that cargo builds keep their symbols to themselves.
        let tells = ["jemalloc", "tcmalloc", "mimalloc", "tbb", "scudo"];
        if tells.contains(&name.as_str()) {
            assert_eq!(renamed.map(|one| one.name), Some(found.name), "{name}");
            recognised += 1;
        }
    }
    if recognised == 0 {
        eprintln!("skipped: no allocator is installed; scripts/setup installs them");
    }
}

/// Goal: a member of a family is the one that the user names, and a name alone does not make an object of
/// one family another's.
#[test]
fn a_name_says_which_member_of_a_family_it_is() {
    let elf = Elf::read(&std::env::current_exe().unwrap())
        .unwrap()
        .unwrap();
    let name = |name: &str, path: &str| of_object(name, Path::new(path), &elf).map(|it| it.name);
    assert_eq!(
        name("mimalloc3@3.4.3", "/x/libmimalloc.so"),
        Some("mimalloc3")
    );
    assert_eq!(name("jemalloc", "/x/libmimalloc.so"), Some("mimalloc"));
    assert_eq!(name("jemalloc", "/x/y.so"), Some("jemalloc"));
    assert_eq!(name("mine", "/x/y.so"), None);
}
