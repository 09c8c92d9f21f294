use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn site() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/file"), "inside").unwrap();
    fs::write(home.path().join("secret"), "outside").unwrap();
    symlink("a/b", root.join("link")).unwrap();
    symlink("b/file", root.join("a/alias")).unwrap();
    symlink("../../secret", root.join("a/up")).unwrap();
    symlink("..", root.join("a/parent")).unwrap();
    symlink("../..", root.join("a/out")).unwrap();
    symlink(home.path().join("secret"), root.join("absolute")).unwrap();
    symlink(root.join("a/b/file"), root.join("absolute-inside")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    (home, root)
}

fn outcome(root: &Root, name: &str) -> Result<&'static str, OpenRefusal> {
    match root.look_up(name.as_bytes(), Patience::Disk)? {
        Opened::Directory => Ok("directory"),
        Opened::File(file, version) => {
            let mut text = [0; 16];
            let count = rustix::io::pread(&file, &mut text[..], 0).unwrap();
            assert_eq!(count as u64, version.size_bytes);
            Ok(if &text[..count] == b"inside" {
                "inside"
            } else {
                "outside"
            })
        }
    }
}

/// Goal: nothing outside the root opens, either way; links within it are followed by the kernel.
#[test]
fn nothing_outside_the_root_opens() {
    let (_home, path) = site();
    let (beneath, by_segment) = (
        Root::open(&path, true).unwrap(),
        Root::open(&path, false).unwrap(),
    );
    let not_found = Err(OpenRefusal::NotFound);
    for (name, expected, without_links) in [
        ("a/b/file", Ok("inside"), Ok("inside")),
        ("a", Ok("directory"), Ok("directory")),
        ("a/b", Ok("directory"), Ok("directory")),
        ("link/file", Ok("inside"), not_found),
        ("a/alias", Ok("inside"), not_found),
        ("a/parent/a/b/file", Ok("inside"), not_found),
        ("a/up", not_found, not_found),
        ("a/out/secret", not_found, not_found),
        ("absolute", not_found, not_found),
        ("absolute-inside", not_found, not_found),
        ("magic/etc/passwd", not_found, not_found),
        ("loop", not_found, not_found),
        ("fifo", not_found, not_found),
        ("missing", not_found, not_found),
        ("a/b/file/more", not_found, not_found),
    ] {
        if beneath.way() == Way::Beneath {
            assert_eq!(outcome(&beneath, name), expected, "{name}");
        }
        assert_eq!(outcome(&by_segment, name), without_links, "{name}");
    }
    let long = "x".repeat(256);
    let deep = "a/b/../".repeat(600);
    for name in [
        long.as_str(),
        deep.as_str(),
        "..",
        "../secret",
        "a/../../secret",
    ] {
        assert_eq!(outcome(&by_segment, name), not_found, "{name}");
    }
}

/// Goal: while a directory and a link that leads out are exchanged all the time, no open ever
/// yields a byte from outside; the file inside is found in between.
#[test]
fn exchanging_a_directory_and_a_link_never_leads_out() {
    let (home, path) = site();
    fs::create_dir_all(home.path().join("b")).unwrap();
    fs::write(home.path().join("b/file"), "outside").unwrap();
    // `a/swap` is now a directory with `b/file` in it, now a link to where the other `b` is.
    fs::create_dir_all(path.join("a/swap/b")).unwrap();
    fs::write(path.join("a/swap/b/file"), "inside").unwrap();
    symlink("../..", path.join("a/swapped")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (path.join("a/swap"), path.join("a/swapped"));
            while !stop.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &one, CWD, &other, exchange).unwrap();
            }
        });
        for root in [
            Root::open(&path, true).unwrap(),
            Root::open(&path, false).unwrap(),
        ] {
            let (mut found_count, mut tries) = (0, 0);
            let begin = Instant::now();
            // As long as it takes to find it once, where the thread that exchanges them stands still.
            while found_count == 0 || found_count < 500 && tries < 200_000 {
                tries += 1;
                let is_time = begin.elapsed() < Duration::from_secs(60);
                assert!(is_time, "{:?}: never inside", root.way());
                match outcome(&root, "a/swap/b/file") {
                    Ok(text) => {
                        assert_eq!(text, "inside");
                        found_count += 1;
                    }
                    Err(refusal) => assert!(
                        matches!(refusal, OpenRefusal::NotFound | OpenRefusal::Exhausted),
                        "{refusal:?}"
                    ),
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Goal: a directory that is none, or missing, is an error when the server starts.
#[test]
fn a_root_is_a_directory() {
    let (home, path) = site();
    let error = |path: PathBuf| Root::open(&path, true).unwrap_err();
    assert_eq!(error(home.path().join("secret")), Errno::NOTDIR);
    assert_eq!(error(path.join("missing")), Errno::NOENT);
}
