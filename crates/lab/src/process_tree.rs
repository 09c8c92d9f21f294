//! Process trees: parents, descendants and listening sockets, read from `/proc`.
//!
//! The supervisor finds what a target left behind; `presence` and `sampler` find the processes that
//! serve. Every result is a snapshot: a process may end right after.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

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

/// `PF_EXITING` of a process's flags.
const EXITING: u64 = 0x4;

/// True for a process that exists and is neither a zombie nor about to become one: the maps of one that is are empty.
#[must_use]
pub fn is_running(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_running_in_stat(&stat))
}

fn is_running_in_stat(stat: &[u8]) -> bool {
    let Some(name_end) = stat.iter().rposition(|&byte| byte == b')') else {
        return false;
    };
    let fields = stat.get(name_end + 1..).map(str::from_utf8);
    let Some(Ok(fields)) = fields else {
        return false;
    };
    // State, parent, group, session, terminal and its group come before.
    let flags = fields.split_ascii_whitespace().nth(6);
    let flags = flags.and_then(|flags| flags.parse::<u64>().ok());
    parent_in_stat(stat).is_some() && flags.is_some_and(|flags| flags & EXITING == 0)
}

/// True for a process that exists and is no zombie.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/stat")).is_ok_and(|stat| parent_in_stat(&stat).is_some())
}

/// The parent of `pid`; `None` for an ended process or a zombie.
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

/// Those of `pids`, all of one network namespace, that hold a TCP socket listening on `port`: the processes that
/// can serve it.
#[must_use]
pub fn listeners(pids: &[i32], port: u16) -> Vec<i32> {
    let sockets = listening_sockets(pids, port, |_| true);
    let serving = pids.iter().copied();
    serving.filter(|&pid| holds_one(pid, &sockets)).collect()
}

/// Those of `pids` that hold the unix socket that listens at `path`.
#[must_use]
pub fn listeners_at_path(pids: &[i32], path: &Path) -> Vec<i32> {
    let Some(first) = pids.first() else {
        return Vec::new();
    };
    let table = fs::read_to_string(format!("/proc/{first}/net/unix")).unwrap_or_default();
    let lines = table.lines().skip(1);
    let sockets: HashSet<String> = lines
        .filter_map(|line| listening_path_inode(line, path))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let serving = pids.iter().copied();
    serving.filter(|&pid| holds_one(pid, &sockets)).collect()
}

/// The inode of a `/proc/net/unix` line, if the socket accepts connections (`__SO_ACCEPTCON`) at `path`.
fn listening_path_inode<'a>(line: &'a str, path: &Path) -> Option<&'a str> {
    const ACCEPTS_CONNECTIONS: u32 = 0x1_0000;
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.trim_start().split_once(' ')?;
        rest = after;
        Some(field)
    };
    for _ in 0..3 {
        field()?;
    }
    let flags = u32::from_str_radix(field()?, 16).ok()?;
    for _ in 0..2 {
        field()?;
    }
    let inode = field()?;
    // The path is the rest of the line, blanks included.
    let name = rest;
    (flags & ACCEPTS_CONNECTIONS != 0 && Path::new(name) == path).then_some(inode)
}

/// Other listeners at `address` beside `pids`, in their network namespace: with `SO_REUSEPORT` two servers share a port
/// without an error, and each gets a part of the connections.
#[must_use]
pub fn other_listener(pids: &[i32], address: SocketAddr) -> Option<i32> {
    let reaching = names_in_tables(address.ip());
    let mut sockets = listening_sockets(pids, address.port(), |local| {
        reaching.iter().any(|name| name == local)
    });
    for &pid in pids {
        for socket in sockets_of(pid) {
            sockets.remove(&socket);
        }
    }
    if sockets.is_empty() {
        return None;
    }
    let all = processes().into_iter().map(|(pid, _)| pid);
    all.filter(|pid| !pids.contains(pid))
        .find(|&pid| holds_one(pid, &sockets))
}

/// How `/proc/net/tcp` and `tcp6` write the local addresses at which a connection to `ip` arrives: the address itself,
/// the address as IPv6, and the wildcard addresses.
fn names_in_tables(ip: IpAddr) -> Vec<String> {
    let words = |bytes: &[u8]| -> String {
        let words = bytes.chunks_exact(4).map(|word| {
            let word = word.try_into().unwrap_or_default();
            format!("{:08X}", u32::from_ne_bytes(word))
        });
        words.collect()
    };
    let all = |bytes: usize| words(&vec![0; bytes]);
    match ip {
        IpAddr::V4(ip) => vec![
            words(&ip.octets()),
            words(&ip.to_ipv6_mapped().octets()),
            all(4),
            all(16),
        ],
        IpAddr::V6(ip) => vec![words(&ip.octets()), all(16)],
    }
}

/// TCP sockets that listen on `port` where `pids` are, at local addresses that `is_meant` is true of.
fn listening_sockets(pids: &[i32], port: u16, is_meant: impl Fn(&str) -> bool) -> HashSet<String> {
    let mut sockets = HashSet::new();
    let Some(pid) = pids.first() else {
        return sockets;
    };
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        let inodes = text
            .lines()
            .skip(1)
            .filter_map(|line| listening_inode(line, port, &is_meant));
        sockets.extend(inodes.map(|inode| format!("socket:[{inode}]")));
    }
    sockets
}

/// The inode of a `/proc/net/tcp` line, if it is in state LISTEN (0A) on `port`.
fn listening_inode(line: &str, port: u16, is_meant: impl Fn(&str) -> bool) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let (local, local_port) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    let is_port = u16::from_str_radix(local_port, 16) == Ok(port);
    (state == "0A" && is_port && is_meant(local)).then_some(inode)
}

fn holds_one(pid: i32, sockets: &HashSet<String>) -> bool {
    sockets_of(pid).any(|socket| sockets.contains(&socket))
}

/// The open files of a process, by the names of their targets.
fn sockets_of(pid: i32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        fs::read_link(entry.path())
            .ok()?
            .into_os_string()
            .into_string()
            .ok()
    })
}

#[cfg(test)]
#[path = "tests/process_tree.rs"]
mod tests;
