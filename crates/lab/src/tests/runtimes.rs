use super::*;

/// Goal: runtimes are known by their files; what is not known has its object's name.
#[test]
fn runtimes_are_known_by_their_files() {
    let of = |path: &str| holder_of(Path::new(path), None).label();
    assert_eq!(
        of("/usr/lib/jvm/lib/server/libjvm.so"),
        "JVM (Java heap, code, metadata)"
    );
    assert_eq!(of("/usr/bin/python3.11"), "CPython (object arenas)");
    assert_eq!(of("/usr/sbin/apache2"), "mapped by apache2 itself");
    assert_eq!(
        holder_of(Path::new("/x/libother.so"), None),
        Holder::Object {
            object: "libother.so".to_owned()
        }
    );
}

/// Goal: libraries of allocators hold what malloc holds, and the C library does, whatever they are called by.
#[test]
fn allocators_serve_malloc() {
    for allocator in crate::allocator::discover() {
        let Some(library) = allocator.library.clone() else {
            continue;
        };
        let elf = Elf::read(&library).unwrap();
        assert_eq!(
            holder_of(&library, elf.as_ref()),
            Holder::Malloc,
            "{}",
            library.display()
        );
    }
}
