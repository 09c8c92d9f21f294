//! Which file an address of a process belongs to, remembered beyond the process's end.
//!
//! On the path: looked at while the target is loaded; samples are read when it is gone. A process
//! that came and went in between has its program's addresses, if it was forked.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// Executable memory.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Code {
    start: u64,
    end: u64,
    file_offset: u64,
    /// `None` for code that was made at run time.
    file: Option<PathBuf>,
}

/// Where an address is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Place<'a> {
    /// In a file, at an offset.
    File(&'a PathBuf, u64),
    /// In memory without a file.
    Generated,
    /// In no executable memory that we know.
    Nowhere,
}

/// A process, as it was last seen.
#[derive(Clone, Debug, Default)]
struct Process {
    name: String,
    code: Vec<Code>,
}

/// All processes of a run.
#[derive(Debug, Default)]
pub(super) struct Maps {
    processes: HashMap<u32, Process>,
}

impl Maps {
    /// Looks at every process; one that is gone by now keeps what was seen before.
    pub(super) fn capture(&mut self, pids: &[u32]) {
        for &pid in pids {
            let Ok(text) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
                continue;
            };
            let code: Vec<Code> = text.lines().filter_map(parse).collect();
            if code.is_empty() {
                continue;
            }
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = name.trim().to_owned();
            self.processes.insert(pid, Process { name, code });
        }
    }

    /// Where `address` is in `pid`, or in one of its program's other processes, if it was never
    /// looked at itself.
    pub(super) fn place(&self, pid: u32, relatives: &[u32], address: u64) -> Place<'_> {
        let own = self.processes.get(&pid);
        let known = own.or_else(|| relatives.iter().find_map(|pid| self.processes.get(pid)));
        let code = known.and_then(|process| {
            let mut all = process.code.iter();
            all.find(|code| (code.start..code.end).contains(&address))
        });
        match code {
            Some(Code {
                file: Some(file),
                start,
                file_offset,
                ..
            }) => Place::File(file, address - start + file_offset),
            Some(_) => Place::Generated,
            None => Place::Nowhere,
        }
    }

    /// The name of a process.
    pub(super) fn name(&self, pid: u32, relatives: &[u32]) -> &str {
        let own = self.processes.get(&pid);
        let known = own.or_else(|| relatives.iter().find_map(|pid| self.processes.get(pid)));
        known.map_or("[ended]", |process| process.name.as_str())
    }
}

/// `start-end perms offset dev inode path`; the path is the rest of the line, blanks included.
fn parse(line: &str) -> Option<Code> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.contains('x') {
        return None;
    }
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let file = fields.nth(2).unwrap_or_default().trim();
    let file = file.strip_suffix(" (deleted)").unwrap_or(file);
    // Anonymous memory of V8 has a name in brackets, memory without a disk one of its own.
    let is_file = file.starts_with('/') && !file.starts_with("/memfd:");
    Some(Code {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        file_offset,
        file: is_file.then(|| PathBuf::from(file)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read() {
        let line = "1000-2000 r-xp 00003000 fe:00 11                  /usr/bin/my prog (deleted)";
        let code = parse(line).unwrap();
        assert_eq!(
            (code.start, code.end, code.file_offset),
            (0x1000, 0x2000, 0x3000)
        );
        assert_eq!(code.file, Some(PathBuf::from("/usr/bin/my prog")));
        assert_eq!(parse("1000-2000 r--p 00000000 fe:00 11  /bin/x"), None);
        let generated = parse("1000-2000 rwxp 00000000 00:00 0 ").unwrap();
        assert_eq!(generated.file, None);
        assert!(
            parse("1000-2000 r-xp 0 00:00 0   [anon:v8]")
                .unwrap()
                .file
                .is_none()
        );
    }

    /// Goal: code of this very process is found in its file, and a process that was never seen is
    /// looked up in its relatives.
    #[test]
    fn addresses_have_places() {
        let own = std::process::id();
        let mut maps = Maps::default();
        maps.capture(&[own]);
        let program = fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
        let address = maps_are_read as fn() as usize as u64;
        assert!(matches!(maps.place(own, &[], address), Place::File(file, _) if *file == program));
        assert_eq!(
            maps.place(0, &[own], address),
            maps.place(own, &[], address)
        );
        assert_eq!(maps.place(own, &[], 8), Place::Nowhere);
        assert_eq!(maps.place(0, &[], address), Place::Nowhere);
        assert_eq!(maps.name(0, &[]), "[ended]");
    }
}
