use super::*;
use crate::files::path::{OpenRefusal, Opened, Patience};
use std::fs;
use std::os::unix::fs::symlink;

fn has(root: &FollowedRoot, name: &str) -> bool {
    match root.current().look_up(name.as_bytes(), Patience::Disk) {
        Ok(Opened::File(..)) => true,
        Err(OpenRefusal::NotFound) => false,
        other => panic!("{other:?}"),
    }
}

/// Goal: a link that is switched, a directory that is made anew, and a name that leads nowhere for a while are found at
/// the next check, and a pinned root stays.
#[test]
fn the_name_is_followed() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (home.path().join("1"), home.path().join("2"));
    for directory in [&one, &two] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join(directory.file_name().unwrap()), "").unwrap();
    }
    let name = home.path().join("now");
    symlink(&one, &name).unwrap();
    let open = |is_pinned| {
        let root = Root::open(&name, true).unwrap();
        FollowedRoot::start(root, &name, true, is_pinned).unwrap()
    };
    let (followed, pinned) = (open(false), open(true));
    let look = || followed.shared.look();
    look();
    assert!((has(&followed, "1"), followed.generation()) == (true, 0));
    let next = home.path().join("next");
    symlink(&two, &next).unwrap();
    fs::rename(&next, &name).unwrap();
    look();
    assert!(has(&followed, "2") && !has(&followed, "1") && followed.generation() > 0);
    fs::remove_file(&name).unwrap();
    look();
    assert!(has(&followed, "2"), "the last one stays");
    fs::create_dir(&name).unwrap();
    fs::write(name.join("3"), "").unwrap();
    look();
    assert!(has(&followed, "3"));
    fs::remove_dir_all(&name).unwrap();
    fs::create_dir(&name).unwrap();
    fs::write(name.join("4"), "").unwrap();
    look();
    assert!(has(&followed, "4"), "an inode is not taken for another");
    assert!(has(&pinned, "1") && pinned.generation() == 0);
}
