//! No way out of the directory: not by its name, not by its links, not while they are exchanged.

use super::{get, home, serve, serve_as};
use crate::support::{PATIENCE, pool_mode};
use millpond_http::FilesConfig;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Path, status with links followed, status without.
const HOSTILE: &[(&str, u16, u16)] = &[
    ("/..", 400, 400),
    ("/../secret", 400, 400),
    ("/../../../../../../../../etc/passwd", 400, 400),
    ("/dir/../../secret", 400, 400),
    ("/dir/../ten", 400, 400),
    ("/./ten", 400, 400),
    ("/%2e%2e/secret", 400, 400),
    ("/%2E%2E/secret", 400, 400),
    ("/.%2e/secret", 400, 400),
    ("/dir/%2e%2e/%2e%2e/secret", 400, 400),
    ("/..%2fsecret", 400, 400),
    ("/..%2Fsecret", 400, 400),
    ("/dir%2f..%2f..%2fsecret", 400, 400),
    ("/%2fetc/passwd", 400, 400),
    ("//etc/passwd", 400, 400),
    ("//evil.example/dir", 400, 400),
    ("/dir//index.html", 400, 400),
    ("/ten%00.html", 400, 400),
    ("/%00", 400, 400),
    ("/%", 400, 400),
    ("/%2", 400, 400),
    ("/%zz", 400, 400),
    ("/%u002e%u002e/secret", 400, 400),
    ("/..\\secret", 400, 400),
    ("/\\evil.example/..", 400, 400),
    ("/%5c..%5csecret", 404, 404),
    ("/..%5csecret", 404, 404),
    ("/%252e%252e/secret", 404, 404),
    ("/%c0%ae%c0%ae/secret", 404, 404),
    ("/%c0%afetc", 404, 404),
    ("/..;/secret", 404, 404),
    ("/...", 404, 404),
    ("/.env", 404, 404),
    ("/%2eenv", 404, 404),
    ("/.git/config", 404, 404),
    ("/dir/.well-known/token", 404, 404),
    ("/leak", 404, 404),
    ("/leak-absolute", 404, 404),
    ("/up/secret", 404, 404),
    ("/magic/etc/passwd", 404, 404),
    ("/fifo", 404, 404),
    ("/ten/", 404, 404),
    ("/ten/index.html", 404, 404),
    ("/dir/empty/", 404, 404),
    ("/missing", 404, 404),
    ("/TEN", 404, 404),
    ("/link/index.html", 200, 404),
    ("/link", 301, 404),
    ("http://a/../secret", 400, 400),
    ("http://a/ten", 200, 200),
    ("http://a", 200, 200),
    ("/ten?/../../secret", 200, 200),
];

/// Goal: hostile paths get the responses of the table, with no byte from outside and no location but on this server.
#[test]
fn hostile_paths_lead_nowhere() {
    let home = home();
    for (follow_links, is_first) in [(true, true), (false, false)] {
        let config = FilesConfig {
            follow_links,
            ..FilesConfig::new(home.root.clone())
        };
        let server = serve_as(&config, pool_mode());
        for (path, with_links, without) in HOSTILE {
            // An invalid target ends the connection, and never reaches the service.
            let mut client = server.connect();
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let response = client.ask(&request);
            let expected = if is_first { with_links } else { without };
            assert_eq!(response.status, *expected, "{path} {response:?}");
            assert!(!response.text().contains("outside"), "{path}");
            assert!(!response.text().contains("hidden"), "{path}");
            if let Some(location) = response.header("location") {
                assert!(
                    location.starts_with('/') && !location.starts_with("//"),
                    "{location}"
                );
            }
        }
        let long = format!("/{}", "a".repeat(300));
        let deep = "/a".repeat(2500);
        for path in [long, deep] {
            assert_eq!(get(&mut server.connect(), &path, "").status, 404);
        }
    }
}

/// Goal: a file that the server's user may not read is 403; root may read all, so then it is served.
#[test]
fn an_unreadable_file_is_forbidden() {
    use std::os::unix::fs::PermissionsExt;
    let home = home();
    let file = home.root.join("ten");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let expected = if File::open(&file).is_ok() { 200 } else { 403 };
    let server = serve(&home.root);
    assert_eq!(get(&mut server.connect(), "/ten", "").status, expected);
}

/// Goal: while a directory is exchanged with a link that leads out, and a file with one, no response
/// has a byte from outside; the files inside are served in between.
#[test]
fn exchanging_links_never_leaks() {
    let home = home();
    let (root, outside) = (&home.root, home.home.path());
    fs::create_dir_all(outside.join("b")).unwrap();
    fs::write(outside.join("b/file"), "outside").unwrap();
    fs::create_dir_all(root.join("swap/b")).unwrap();
    fs::write(root.join("swap/b/file"), "inside").unwrap();
    symlink("..", root.join("swapped")).unwrap();
    fs::write(root.join("leaf"), "inside").unwrap();
    symlink("../secret", root.join("leaf-link")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (one, other) in [("swap", "swapped"), ("leaf", "leaf-link")] {
                    let (one, other) = (root.join(one), root.join(other));
                    let exchange = rustix::fs::RenameFlags::EXCHANGE;
                    let cwd = rustix::fs::CWD;
                    rustix::fs::renameat_with(cwd, &one, cwd, &other, exchange).unwrap();
                }
            }
        });
        for (follow_links, cache_bytes) in [(true, 0), (true, 1 << 20), (false, 0)] {
            let server = serve_as(
                &FilesConfig {
                    follow_links,
                    cache_bytes,
                    ..FilesConfig::new(root.clone())
                },
                pool_mode(),
            );
            let mut client = server.connect();
            let (mut served_count, mut rounds) = (0, 0);
            let begin = Instant::now();
            // As long as it takes to be served once, where the thread that exchanges them stands still.
            while rounds < 1500 || served_count == 0 {
                rounds += 1;
                assert!(begin.elapsed() < PATIENCE, "never served");
                for path in ["/swap/b/file", "/leaf"] {
                    let response = get(&mut client, path, "");
                    match response.status {
                        200 => {
                            assert_eq!(response.text(), "inside");
                            served_count += 1;
                        }
                        404 => {}
                        // Too many races for one request.
                        503 => client = server.connect(),
                        _ => panic!("{response:?}"),
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
