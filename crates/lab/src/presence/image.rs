//! A process's memory as its own files lay it out: what is mapped where, and what is written there.
//!
//! On the path: `interposition` and `environment` read addresses that the dynamic linker wrote.
//! Absent on purpose: stopping the process. What is read is written once, at its start.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One line of `/proc/PID/maps` that has a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_code: bool,
    pub(crate) file_offset: u64,
    pub(crate) inode: u64,
    pub(crate) file: PathBuf,
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) mappings: Vec<Mapping>,
    pid: i32,
    memory: File,
}

/// A file with code in a process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Object<'a> {
    /// The first of its mappings.
    pub(crate) mapping: &'a Mapping,
    /// Where what runs can be read: the process may have another root than this one, or an older file.
    pub(crate) readable: PathBuf,
}

impl Image {
    /// Reads the map and opens the memory of `pid`.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(Self {
            mappings: maps.lines().filter_map(parse).collect(),
            pid,
            memory: File::open(format!("/proc/{pid}/mem"))?,
        })
    }

    /// The eight bytes at an address; `None` if nothing is there.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0_u8; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The bytes at an address; `None` if they are not all there.
    pub(crate) fn bytes(&self, address: u64, len_bytes: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len_bytes];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// The bytes at an address up to a zero, no more than `bytes_max` of them.
    pub(crate) fn text(&self, address: u64, bytes_max: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut part = [0_u8; 256];
        while text.len() < bytes_max {
            let at = address.checked_add(text.len() as u64)?;
            // Not across a page's end: the next page may not be there.
            let in_page = usize::try_from(256 - at % 256).ok()?;
            let piece = part.get_mut(..in_page)?;
            self.memory.read_exact_at(piece, at).ok()?;
            if let Some(end) = piece.iter().position(|&byte| byte == 0) {
                text.extend_from_slice(piece.get(..end)?);
                return Some(text);
            }
            text.extend_from_slice(piece);
        }
        Some(text)
    }

    /// The file that an address is in.
    pub(crate) fn file_at(&self, address: u64) -> Option<&Path> {
        let mapping = self
            .mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))?;
        Some(&mapping.file)
    }

    /// The files with code in this process, each once. A file that was replaced since is left out where only what is on the
    /// disk now can be read: that is not what runs.
    pub(crate) fn objects(&self) -> Vec<Object<'_>> {
        let mut objects: Vec<Object<'_>> = Vec::new();
        for mapping in &self.mappings {
            let is_new = objects
                .iter()
                .all(|object| object.mapping.file != mapping.file);
            let has_code = |other: &&Mapping| other.is_code && other.file == mapping.file;
            if !is_new || !self.mappings.iter().any(|other| has_code(&other)) {
                continue;
            }
            if let Some(readable) = self.readable(mapping) {
                objects.push(Object { mapping, readable });
            }
        }
        objects
    }

    /// Where the mapped file can be read: by its name below the process's root, or, with the right to do so, by the kernel's
    /// link to what is mapped.
    fn readable(&self, mapping: &Mapping) -> Option<PathBuf> {
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        let named = in_root(self.pid, &mapping.file);
        let is_same =
            |path: &Path| fs::metadata(path).is_ok_and(|file| file.ino() == mapping.inode);
        let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
        let ways = [named, process.join(link)];
        ways.into_iter().find(|path| is_same(path))
    }
}

/// A path of process `pid` as this one finds it, whatever the root of that is.
pub(crate) fn in_root(pid: i32, path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").unwrap_or(path);
    PathBuf::from(format!("/proc/{pid}/root")).join(path)
}

/// `start-end perms offset dev inode path`; the path is the rest of the line, blanks included.
fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let file = fields.next()?.trim_start();
    file.starts_with('/').then(|| Mapping {
        start: u64::from_str_radix(start, 16).unwrap_or(0),
        end: u64::from_str_radix(end, 16).unwrap_or(0),
        is_code: permissions.contains('x'),
        file_offset,
        inode,
        file: PathBuf::from(file),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names with blanks, other inodes and anonymous memory do not confuse.
    #[test]
    fn maps_are_read() {
        let line = "55d1-55d2 r-xp 00001000 fe:00 11                  /usr/bin/my prog";
        let mapping = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x55d1, 0x55d2));
        assert_eq!((mapping.file_offset, mapping.inode), (0x1000, 11));
        assert!(mapping.is_code && mapping.file == Path::new("/usr/bin/my prog"));
        assert_eq!(parse("7f00-7f01 rw-p 00000000 00:00 0 "), None);
        assert_eq!(
            parse("7ffc-7ffd r-xp 00000000 00:00 0          [vdso]"),
            None
        );
    }

    /// Goal: a word of this very process is read from outside as it is, text up to its end, and
    /// nothing where nothing is.
    #[test]
    fn own_memory_is_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        let image = Image::open(own).unwrap();
        let word = Box::new(0x1234_5678_9abc_def0_u64);
        assert_eq!(image.word(&raw const *word as u64), Some(*word));
        let text = format!("{}\0beyond", "x".repeat(1000)).into_bytes();
        let found = image.text(text.as_ptr() as u64, 4096).unwrap();
        assert_eq!(found, "x".repeat(1000).into_bytes());
        assert_eq!(image.word(8), None);
        let program = fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
        let objects = image.objects();
        let own = objects.iter().find(|one| one.mapping.file == program);
        assert!(own.is_some_and(|own| own.readable.is_file()), "{objects:?}");
        assert_eq!(
            image.file_at(maps_are_read as fn() as usize as u64),
            Some(program.as_path())
        );
    }
}
