//! Did a setting of the allocator reach the process? It is read once, at the start of the program,
//! from the environment that the program was started with.
//!
//! `/proc/PID/environ` is that environment, unless the program wrote its title over it, as nginx
//! does. Then the variables that the program still has count, or those of its parent: a worker that
//! was forked has its parent's heap.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::image::Image;
use super::interposition::is_c_library;
use crate::elf::Elf;
use crate::process_tree::parent_of;

/// More parents than a target has.
const PARENTS_MAX: usize = 16;
/// More variables than a program has.
const VARIABLES_MAX: u64 = 4096;
/// More than the longest variable of ours.
const VARIABLE_BYTES_MAX: usize = 8192;

/// How the variable of the C library's tunables begins, and each of them.
const TUNABLES: &[u8] = b"GLIBC_TUNABLES=";
const TUNABLE: &[u8] = b"glibc.";

/// True if process `pid`, or the one it was forked from, was started with `name` set to `value`.
pub(super) fn was_given(pid: i32, name: &OsStr, value: &OsStr) -> bool {
    let wanted = [name.as_bytes(), b"=", value.as_bytes()].concat();
    let mut pid = pid;
    for _ in 0..PARENTS_MAX {
        let given = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if is_intact(&given) {
            return variables(&given).contains(&wanted);
        }
        // What a program has now may be less than it was given, never more that is ours.
        if present(pid).is_some_and(|variables| variables.contains(&wanted)) {
            return true;
        }
        match parent_of(pid) {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// The variables of a process, and where they were found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Variables {
    /// What its program was started with.
    Given(Vec<Vec<u8>>),
    /// What it has now: it wrote its title over what it was given.
    Present(Vec<Vec<u8>>),
}

/// The variables of process `pid`.
pub(crate) fn of_process(pid: i32) -> io::Result<Variables> {
    let given = fs::read(format!("/proc/{pid}/environ"))?;
    if given.is_empty() || is_intact(&given) {
        return Ok(Variables::Given(variables(&given)));
    }
    let present = present(pid).ok_or_else(|| {
        io::Error::other("its program has overwritten the variables that it was started with")
    })?;
    Ok(Variables::Present(present))
}

/// The variables of `/proc/PID/environ`. The dynamic linker writes zeros over the colons of `GLIBC_TUNABLES` there
/// (C libraries before 2.39 do, in what the program was given), so parts that begin as tunables do belong to it.
fn variables(environment: &[u8]) -> Vec<Vec<u8>> {
    let mut list: Vec<Vec<u8>> = Vec::new();
    for part in environment.split(|&byte| byte == 0) {
        match list.last_mut() {
            Some(last) if last.starts_with(TUNABLES) && part.starts_with(TUNABLE) => {
                last.push(b':');
                last.extend_from_slice(part);
            }
            _ => list.push(part.to_vec()),
        }
    }
    list
}

/// Text, with variables in it: not zeros, and not a title.
fn is_intact(environment: &[u8]) -> bool {
    environment
        .split(|&byte| byte == 0)
        .any(|variable| variable.contains(&b'='))
}

/// The variables that a program has now, where its C library keeps them.
fn present(pid: i32) -> Option<Vec<Vec<u8>>> {
    let image = Image::open(pid).ok()?;
    let library = image
        .objects()
        .into_iter()
        .find(|object| is_c_library(&object.mapping.file))?;
    let elf = Elf::read(&library.readable).ok()??;
    let mapping = library.mapping;
    let bias = elf.load_bias(mapping.start, mapping.file_offset)?;
    let variable = elf
        .address_of("__environ")
        .or_else(|| elf.address_of("environ"))?;
    let list = image.word(bias.wrapping_add(variable))?;
    (0..VARIABLES_MAX)
        .map(|index| image.word(list.checked_add(index * 8)?))
        .map_while(|pointer| pointer.filter(|&pointer| pointer != 0))
        .map(|pointer| image.text(pointer, VARIABLE_BYTES_MAX))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Two settings of glibc could not be compared: the dynamic linker had put a zero between them.
    ///
    /// Goal: tunables are one variable, whatever stands between them, and no other one becomes a part of them.
    #[test]
    fn tunables_are_one_variable() {
        let given = b"A=1\0GLIBC_TUNABLES=glibc.malloc.arena_max=2\0glibc.malloc.tcache_count=3\0B=glibc.x=1\0";
        let list = variables(given);
        let has = |text: &str| list.contains(&text.as_bytes().to_vec());
        assert!(has(
            "GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.malloc.tcache_count=3"
        ));
        assert!(has("A=1") && has("B=glibc.x=1"));
        assert!(!has("GLIBC_TUNABLES=glibc.malloc.arena_max=2"));
    }

    /// Goal: a variable is found where it was given, with its value, and nowhere else.
    #[test]
    fn variables_are_found_where_they_were_given() {
        let mut child = Command::new("/bin/sleep")
            .arg("60")
            .env("MILLPOND_TEST", "a=1")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // Until exec it has this process's, and for a moment none.
        let has_begun = || {
            let exe = fs::read_link(format!("/proc/{pid}/exe"));
            let given = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            exe.is_ok_and(|exe| exe.ends_with("sleep")) && is_intact(&given)
        };
        while !has_begun() {
            std::thread::yield_now();
        }
        let given =
            |pid, name: &str, value: &str| was_given(pid, OsStr::new(name), OsStr::new(value));
        let found = [
            given(pid, "MILLPOND_TEST", "a=1"),
            given(pid, "MILLPOND_TEST", "a=2"),
            given(pid, "MILLPOND", "a=1"),
        ];
        let own = i32::try_from(std::process::id()).unwrap();
        let (now, before) = (present(own), given(own, "MILLPOND_TEST", "a=1"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [true, false, false]);
        assert!(!before && now.is_some_and(|variables| !variables.is_empty()));
        assert!(!is_intact(b"nginx: worker process\0\0\0") && is_intact(b"\0A=\0"));
    }
}
