//! Whose heap the memory is that an object maps: an allocator library's, a runtime's, or that of an allocator which is a
//! part of the object.

use std::path::Path;

use millpond_measure::record::Holder;

use crate::allocator::{family_by_symbol, name_of_library};
use crate::elf::Elf;

/// How files of runtimes begin, and whose heap they have.
const RUNTIMES: &[(&str, &str)] = &[
    ("libjvm.so", "JVM (Java heap, code, metadata)"),
    ("libnode.so", "V8 (JavaScript heap)"),
    ("node", "V8 (JavaScript heap)"),
    ("libv8", "V8 (JavaScript heap)"),
    ("libphp", "PHP (Zend heap)"),
    ("php", "PHP (Zend heap)"),
    ("mod_php", "PHP (Zend heap)"),
    ("libpython", "CPython (object arenas)"),
    ("python", "CPython (object arenas)"),
    ("libruby", "Ruby (object heap)"),
    ("ruby", "Ruby (object heap)"),
    ("beam.smp", "Erlang (BEAM carriers)"),
    ("libcoreclr", ".NET (managed heap)"),
    ("libclrgc", ".NET (managed heap)"),
    ("libmonosgen", ".NET (managed heap)"),
    ("libluajit", "LuaJIT (Lua heap)"),
];

/// The runtime with a heap of its own that a file of this name is.
pub(crate) fn runtime_of(name: &str) -> Option<&'static str> {
    let mut all = RUNTIMES.iter();
    all.find(|(begin, _)| name.starts_with(begin))
        .map(|&(_, runtime)| runtime)
}

/// Who holds what the code of `file` maps.
pub(super) fn holder_of(file: &Path, elf: Option<&Elf>) -> Holder {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let is_library = elf.is_some_and(|elf| elf.is_shared() && elf.interpreter().is_none());
    // What exports malloc serves it, if the dynamic linker found it first: as the preloaded one was proved to be.
    let serves_malloc =
        name_of_library(file).is_some() || elf.is_some_and(|elf| elf.exports("malloc"));
    if is_library && serves_malloc {
        return Holder::Malloc;
    }
    if let Some(runtime) = runtime_of(&name) {
        return Holder::Runtime {
            name: runtime.to_owned(),
        };
    }
    // A stripped object says nothing.
    let inside = elf.and_then(|elf| family_by_symbol(|symbol| elf.contains(symbol)));
    match inside {
        Some(allocator) => Holder::Embedded {
            name: allocator.to_owned(),
            object: name,
        },
        None => Holder::Object { object: name },
    }
}

#[cfg(test)]
mod tests {
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
}
