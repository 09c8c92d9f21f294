use super::*;
use std::fs;

fn select_one(word: &str) -> Result<Allocator, AllocatorError> {
    select(&[word.to_owned()]).map(|mut list| list.remove(0))
}

/// Goal: nothing preloaded is always possible, under each of its names, but only once.
#[test]
fn glibc_is_always_there() {
    assert_eq!(discover()[0].name, GLIBC);
    assert_eq!(select_one("glibc").unwrap().library, None);
    assert_eq!(select_one("native").unwrap().library, None);
    let twice = select(&["glibc".to_owned(), "malloc".to_owned()]).unwrap_err();
    assert_eq!(
        twice,
        AllocatorError::Twice {
            name: GLIBC.to_owned()
        }
    );
}

/// Goal: every known allocator is found or can be had: its absence comes with what to do.
#[test]
fn what_is_not_here_says_how_to_get_it() {
    let found = discover();
    let lines = missing().join("\n");
    for name in KNOWN.iter().map(|known| known.name) {
        let here = found.iter().any(|allocator| allocator.name == name);
        let named = lines.split([' ', ',', '\n']).any(|word| word == name);
        assert_ne!(here, named, "{name}: {lines}");
        match select_one(name) {
            Ok(allocator) => assert!(here && allocator.name == name),
            Err(error) => {
                let sentence = error.to_string();
                let remedy = ["apt-get install", "cargo xtask allocators --only"];
                assert!(
                    remedy.iter().any(|words| sentence.contains(words)),
                    "{sentence}"
                );
            }
        }
    }
}

/// Goal: our own pools are always there, as one file while anybody holds it and as none after. A
/// file that others have mapped is never written again.
#[test]
fn mempool_is_always_there() {
    let first = select_one(MEMPOOL).unwrap();
    assert!(
        first
            .library_title()
            .unwrap()
            .starts_with("libmillpond-mempool.so in")
    );
    let object = first.library.clone().unwrap();
    assert_eq!(first.version().as_deref(), Some(env!("CARGO_PKG_VERSION")));
    let written = fs::metadata(&object).unwrap().modified().unwrap();
    let second = select_one(MEMPOOL).unwrap();
    assert_eq!(second, first);
    assert_eq!(fs::metadata(&object).unwrap().modified().unwrap(), written);
    drop(first);
    assert!(object.is_file());
    let directory = second.written.clone();
    drop(second);
    let directory = directory.unwrap().path.clone();
    // Another test may hold it just now; it releases it within moments.
    for _ in 0..10_000 {
        if !directory.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} stays behind", directory.display());
}

/// Goal: `all` is what discovery finds, and not a name for something else.
#[test]
fn all_means_everything_that_is_found() {
    assert_eq!(select(&["all".to_owned()]).unwrap(), discover());
    assert!(select(&["all".to_owned(), "glibc".to_owned()]).is_err());
    assert!(
        select_one("all=/lib/x.so")
            .unwrap_err()
            .to_string()
            .contains("name of its own")
    );
}

/// Goal: discovered allocators pass the same checks as a user's own library.
#[test]
fn discovered_libraries_are_usable() {
    for allocator in discover() {
        let Some(library) = allocator.library else {
            continue;
        };
        let word = format!("again={}", library.display());
        assert_eq!(select_one(&word).unwrap().library, Some(library));
    }
}
