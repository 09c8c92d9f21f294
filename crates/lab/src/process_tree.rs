//! Who belongs to whom: parents, descendants and listening sockets, read from `/proc`.
//!
//! On the path: the supervisor finds what a target left behind; `presence` and `sampler` find the
//! processes that serve. Every answer is a snapshot: a process may end right after.

use std::collections::HashSet;
use std::fs;

/// Every process with its parent, as `(pid, parent)`; zombies are left out.
fn processes() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            Some((
                pid,
                parent_in_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)?,
            ))
        })
        .collect()
}

/// The parent in a `/proc/PID/stat` line, unless the process is a zombie. The name in parentheses
/// may hold anything, so fields are counted from the last parenthesis.
fn parent_in_stat(stat: &[u8]) -> Option<i32> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let text = str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

/// True for a process that exists and is no zombie.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/stat")).is_ok_and(|stat| parent_in_stat(&stat).is_some())
}

/// The parent of `pid`; `None` for a process that is gone or a zombie.
#[must_use]
pub fn parent_of(pid: i32) -> Option<i32> {
    parent_in_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The living direct children of `pid`.
#[must_use]
pub fn children_of(pid: i32) -> Vec<i32> {
    processes()
        .into_iter()
        .filter(|&(_, parent)| parent == pid)
        .map(|(child, _)| child)
        .collect()
}

/// `root` and everything below it, parents before children.
#[must_use]
pub fn tree_of(root: i32) -> Vec<i32> {
    let all = processes();
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        tree.extend(
            all.iter()
                .filter(|&&(_, of)| of == parent)
                .map(|&(pid, _)| pid),
        );
        next += 1;
    }
    tree
}

/// Those of `pids` that hold a TCP socket listening on `port`: the processes that can serve it.
#[must_use]
pub fn listeners(pids: &[i32], port: u16) -> Vec<i32> {
    let mut sockets: HashSet<String> = HashSet::new();
    // A server in its own network namespace would need its own table; targets here share the lab's.
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let inodes = text
            .lines()
            .skip(1)
            .filter_map(|line| listening_inode(line, port));
        sockets.extend(inodes.map(|inode| format!("socket:[{inode}]")));
    }
    pids.iter()
        .copied()
        .filter(|&pid| holds_one(pid, &sockets))
        .collect()
}

/// The inode of a `/proc/net/tcp` line, if it is in state LISTEN (0A) on `port`.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let (_, local_port) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    (state == "0A" && u16::from_str_radix(local_port, 16) == Ok(port)).then_some(inode)
}

fn holds_one(pid: i32, sockets: &HashSet<String>) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    entries.flatten().any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.to_str().is_some_and(|name| sockets.contains(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::process::{Command, id};

    /// Goal: a name made to confuse the parser does not; zombies do not count as living.
    #[test]
    fn parent_is_read_behind_any_name() {
        assert_eq!(parent_in_stat(b"12 (a) R 9) x) S 77 12 12 0"), Some(77));
        assert_eq!(parent_in_stat(b"12 (sh) Z 77 12 12 0"), None);
        assert_eq!(parent_in_stat(b"12 (sh"), None);
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

    /// Goal: only the process that listens is named, and only for its own port.
    #[test]
    fn listener_is_found_by_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = i32::try_from(id()).unwrap();
        assert_eq!(listeners(&[own, 1], port), [own]);
        drop(listener);
        assert_eq!(listeners(&[own], port), [0_i32; 0]);
    }
}
