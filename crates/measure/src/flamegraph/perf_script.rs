//! perf's samples as stacks: what `perf script -F comm,ip,sym,dso` (or `ip,sym,dso`) prints.
//!
//! A sample is a line with the thread's name, if that was asked for, a line for each frame from the
//! innermost out, `address symbol (file)`, and an empty line.

use std::borrow::Cow;

use super::Stacks;

/// What stands below the outermost frame of every stack.
#[derive(Clone, Copy, Debug)]
pub enum Root<'a> {
    /// The thread's name, as the sample has it.
    Thread,
    /// A title of ours; `;` separates several.
    Title(&'a str),
}

impl Stacks {
    /// Adds every sample of a script; returns how many there were.
    pub fn add_perf_script(&mut self, script: &str, root: Root<'_>) -> u64 {
        let mut samples = 0;
        for sample in script.split("\n\n") {
            let mut thread = "";
            let mut frames: Vec<Cow<'_, str>> = Vec::new();
            for line in sample.lines() {
                match frame(line) {
                    Some(name) => frames.push(name),
                    None if !line.starts_with([' ', '\t']) => thread = line.trim(),
                    None => {}
                }
            }
            // Code that has no names is one box, however many frames it is deep.
            frames.dedup_by(|one, other| one == other && one.starts_with('['));
            if frames.is_empty() {
                continue;
            }
            samples += 1;
            let outermost_first = frames.iter().rev().map(|frame| &**frame);
            match root {
                Root::Thread => self.add([thread].into_iter().chain(outermost_first), 1),
                Root::Title(title) => self.add(title.split(';').chain(outermost_first), 1),
            }
        }
        samples
    }
}

/// The function of a frame's line `  55d0c0ffee name (/usr/lib/file)`; for code without a name, the
/// file's in brackets.
fn frame(line: &str) -> Option<Cow<'_, str>> {
    if !line.starts_with([' ', '\t']) {
        return None;
    }
    let (address, rest) = line.trim().split_once(' ')?;
    u64::from_str_radix(address, 16).ok()?;
    // A function's own brackets come before those of the file.
    let (name, file) = match rest.trim().rsplit_once(" (") {
        Some((name, file)) => (name.trim(), file.trim_end_matches(')')),
        None => (rest.trim(), "[unknown]"),
    };
    if name != "[unknown]" && !name.is_empty() {
        return Some(without_hash(name).into());
    }
    Some(place(file))
}

/// Where code without a name is.
fn place(file: &str) -> Cow<'_, str> {
    if file.starts_with("[kernel") || file.ends_with(".ko") {
        "[kernel]".into()
    } else if file == "[unknown]" || file.is_empty() {
        "[unknown]".into()
    } else if file.starts_with("//") || file.contains("anon") || file.starts_with("/tmp/perf-") {
        "[generated code]".into()
    } else if file.starts_with("[vdso") {
        "[vdso]".into()
    } else {
        let name = file.rsplit('/').next().unwrap_or(file);
        format!("[{name}]").into()
    }
}

/// A Rust name without the hash that the compiler appends.
#[must_use]
pub fn without_hash(name: &str) -> &str {
    let is_hash = |tail: &str| {
        tail.len() == 17
            && tail.starts_with('h')
            && tail[1..].bytes().all(|it| it.is_ascii_hexdigit())
    };
    match name.rsplit_once("::") {
        Some((path, tail)) if is_hash(tail) => path,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
nginx: worker \n\
\t    55d1 malloc (/usr/lib/libc.so.6)\n\
\t    55d0 bench::pair::h0123456789abcdef (/bin/x)\n\
\t    55cf std::f<int (*)(int)>::g(int) (/bin/a b)\n\
\t    55ce [unknown] (/bin/stripped)\n\
\t    55cd [unknown] (/bin/stripped)\n\n\
nginx: worker \n\
\tffff8000 [unknown] ([kernel.kallsyms])\n\
\t    7f00 [unknown] (//anon)\n\n\
other\n\n\
nothing here\n";

    /// Goal: stacks come outermost first below their thread, hashes and places of files are gone,
    /// brackets of C++ stay, and what is no sample is passed over.
    #[test]
    fn samples_become_stacks() {
        let mut stacks = Stacks::default();
        assert_eq!(stacks.add_perf_script(SCRIPT, Root::Thread), 2);
        let folded = "nginx: worker;[generated code];[kernel] 1\n\
            nginx: worker;[stripped];std::f<int (*)(int)>::g(int);bench::pair;malloc 1\n";
        assert_eq!(stacks.to_folded(), folded);
    }

    #[test]
    fn a_title_takes_the_place_of_the_thread() {
        let script = "\t    55d1 malloc (/lib/c)\n\t    55cf main (/bin/x)\n\n\
                      \t    55d1 malloc (/lib/c)\n\t    55cf main (/bin/x)\n\n";
        let mut stacks = Stacks::default();
        assert_eq!(stacks.add_perf_script(script, Root::Title("glibc;pair")), 2);
        assert_eq!(stacks.to_folded(), "glibc;pair;main;malloc 2\n");
    }
}
