use super::*;
#[cfg(feature = "symbols")]
use crate::profile::files::{CodeLocation, Maps};

/// Goal: a function of this very program gets its name, and what is no code gets none.
#[cfg(feature = "symbols")]
#[test]
fn functions_have_names() {
    let own = std::process::id();
    let mut maps = Maps::default();
    maps.capture(&[own]);
    let address = functions_have_names as fn() as usize as u64 + 1;
    let CodeLocation::File(file, offset) = maps.place(own, &[], address) else {
        unreachable!("this is code of a file")
    };
    let mut symbols = Symbols::new();
    symbols.prepare(HashMap::from([(file.as_path(), HashSet::from([offset]))]));
    let names = symbols.names(file, offset);
    let last = names.last().unwrap();
    assert!(last.ends_with("functions_have_names"), "{names:?}");
}

/// Goal: code without a name is shown by its file.
#[test]
fn what_has_no_name_has_a_file() {
    let mut symbols = Symbols::new();
    let nowhere = Path::new("/nowhere");
    symbols.prepare(HashMap::from([(nowhere, HashSet::from([1]))]));
    assert_eq!(&*symbols.names(nowhere, 1), ["[nowhere]"]);
}
