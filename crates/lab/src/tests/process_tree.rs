use super::*;
use std::net::{Ipv6Addr, TcpListener};
use std::process::{Command, id};

/// Goal: a name made to confuse the parser does not; zombies do not count as living.
#[test]
fn parent_is_read_behind_any_name() {
    assert_eq!(parent_in_stat(b"12 (a) R 9) x) S 77 12 12 0"), Some(77));
    assert_eq!(parent_in_stat(b"12 (sh) Z 77 12 12 0"), None);
    assert_eq!(parent_in_stat(b"12 (sh"), None);
}

/// Goal: a process that ends is not running from the moment in which its memory goes.
#[test]
fn who_is_ending_is_not_running() {
    assert!(is_running_in_stat(
        b"12 (a) R 9) x) S 77 12 12 0 -1 4194304 1"
    ));
    assert!(!is_running_in_stat(b"12 (sh) R 77 12 12 0 -1 4194308 1"));
    assert!(!is_running_in_stat(b"12 (sh) Z 77 12 12 0 -1 4194304 1"));
    assert!(!is_running_in_stat(b"12 (sh) S 77 12 12"));
    assert!(!is_running_in_stat(b"12 (sh"));
    let own = i32::try_from(id()).unwrap();
    assert!(is_running(own) && !is_running(i32::MAX));
}

/// Goal: a child process is found, and no longer once it was collected.
#[test]
fn own_child_is_in_the_tree() {
    let own = i32::try_from(id()).unwrap();
    let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    assert!(children_of(own).contains(&pid));
    assert!(tree_of(own).contains(&pid));
    assert!(is_alive(pid));
    assert_eq!(parent_of(pid), Some(own));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!children_of(own).contains(&pid));
    assert!(!is_alive(pid));
}

/// Goal: the process that listens on a unix socket is found by the path alone, with a blank in it too; one that is
/// connected to it is not.
#[test]
fn listeners_on_unix_sockets_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let own = i32::try_from(id()).unwrap();
    assert_eq!(listeners_at_path(&[own], &path), [own]);
    assert!(listeners_at_path(&[own], directory.path()).is_empty());
    let near = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let far = listener.accept().unwrap();
    drop(listener);
    assert!(listeners_at_path(&[own], &path).is_empty());
    drop((near, far));
}

/// Goal: only the process that listens is named, and only for its own port.
#[test]
fn listener_is_found_by_its_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let port = address.port();
    let own = i32::try_from(id()).unwrap();
    assert_eq!(listeners(&[own, 1], port), [own]);
    assert_eq!(other_listener(&[own], address), None);
    // Seen from a process that does not hold it.
    let mut other = Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let stranger = i32::try_from(other.id()).unwrap();
    assert_eq!(other_listener(&[stranger], address), Some(own));
    let elsewhere = SocketAddr::new([127, 0, 0, 2].into(), port);
    assert_eq!(other_listener(&[stranger], elsewhere), None);
    if let Ok(everywhere) = TcpListener::bind("[::]:0") {
        let mut address = everywhere.local_addr().unwrap();
        for ip in [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
            address.set_ip(ip);
            assert_eq!(other_listener(&[stranger], address), Some(own), "{ip}");
        }
    }
    other.kill().unwrap();
    other.wait().unwrap();
    drop(listener);
    assert_eq!(listeners(&[own], port), [0_i32; 0]);
}
