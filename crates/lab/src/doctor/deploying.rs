//! What the machine that a winner is to run on means for it: facts that a comparison elsewhere does not meet.
//!
//! The facts are lines of text, `name=value`, so that a shell without this program can write them as well. They
//! come from the machine that is examined, or from a file that was written on another one; then each is held
//! against this machine, where the comparison ran.
//! Libraries that a program opens with `RTLD_DEEPBIND` are not examined: that is a flag of a call, which no file shows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use millpond_measure::environment::bracketed;

use super::{Finding, Machine, Section};
use crate::allocator::{c_library_version, major_and_minor};
use crate::config::on_path;
use crate::elf::Elf;
use crate::suitability;

/// What distributions build allocators for.
const PAGE_BYTES_USUAL: u64 = 4_096;
/// The default of the kernel.
const MAPPINGS_USUAL: u64 = 65_530;
/// The kernel has restartable sequences from this version on.
const RSEQ_SINCE: (u32, u32) = (4, 18);
/// Google's tcmalloc is reported to crash from this one on (google/tcmalloc issue 292).
const TCMALLOC_CRASHES_SINCE: (u32, u32) = (6, 19);
/// The GNU C library registers restartable sequences for itself from this version on.
const GLIBC_TAKES_RSEQ_SINCE: (u32, u32) = (2, 35);
/// Allocators that reserve far more address space than they use.
const RESERVING: &str = "mimalloc, snmalloc, hardened_malloc and scudo";

/// What is known of a machine, by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Facts {
    values: BTreeMap<String, String>,
}

/// The names of the facts, in the order in which they are written.
const NAMES: [&str; 8] = [
    "page_bytes",
    "kernel",
    "architecture",
    "libc",
    "huge_pages",
    "max_map_count",
    "overcommit",
    "address_space_kib",
];

impl Facts {
    /// Of a machine, as far as it shows them.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        let address_space = machine
            .limit("Max address space")
            .map(|limit| match limit.soft {
                u64::MAX => "unlimited".to_owned(),
                bytes => (bytes / 1024).to_string(),
            });
        let known = [
            ("page_bytes", page_bytes(machine)),
            ("kernel", machine.text("proc/sys/kernel/osrelease")),
            ("architecture", Some(std::env::consts::ARCH.to_owned())),
            ("libc", c_library(machine)),
            (
                "huge_pages",
                machine.text("sys/kernel/mm/transparent_hugepage/enabled"),
            ),
            ("max_map_count", machine.text("proc/sys/vm/max_map_count")),
            ("overcommit", machine.text("proc/sys/vm/overcommit_memory")),
            ("address_space_kib", address_space),
        ];
        let known = known.into_iter();
        Self {
            values: known
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect(),
        }
    }

    /// As text; an error, as a sentence, if none of the facts is in it. What is not known is skipped.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let lines = lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        let values: BTreeMap<String, String> = lines
            .filter(|(name, value)| NAMES.contains(&name.as_str()) && !value.is_empty())
            .collect();
        match values.is_empty() {
            true => Err(
                "it has none of the lines that `millpond doctor --print-facts` writes (page_bytes=4096 is one)"
                    .to_owned(),
            ),
            false => Ok(Self { values }),
        }
    }

    /// One line for each fact.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for name in NAMES {
            if let Some(value) = self.text(name) {
                // A String takes any text.
                let _ = writeln!(text, "{name}={value}");
            }
        }
        text
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// `madvise` of `always [madvise] never`.
    fn huge_pages(&self) -> Option<&str> {
        let text = self.text("huge_pages")?;
        Some(bracketed(text).unwrap_or(text))
    }

    fn kernel(&self) -> Option<(u32, u32)> {
        major_and_minor(self.text("kernel")?)
    }

    fn is_musl(&self) -> bool {
        self.text("libc").is_some_and(|libc| libc.contains("musl"))
    }

    /// The version of the GNU C library: what `ldd --version` begins with ends in it.
    fn glibc(&self) -> Option<(u32, u32)> {
        let libc = self.text("libc").filter(|_| !self.is_musl())?;
        let mut words = libc.split_whitespace();
        // The banner begins with the version, the line of ldd ends with it.
        words
            .next()
            .and_then(major_and_minor)
            .or_else(|| words.next_back().and_then(major_and_minor))
    }
}

/// Of the first mapping of this process.
fn page_bytes(machine: &Machine) -> Option<String> {
    let smaps = machine.text("proc/self/smaps")?;
    let line = smaps
        .lines()
        .find_map(|line| line.strip_prefix("KernelPageSize:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib * 1024).to_string())
}

/// The one that programs of this system use: that of this program, or musl's where its loader is the only one.
fn c_library(machine: &Machine) -> Option<String> {
    let musl = format!("lib/ld-musl-{}.so.1", std::env::consts::ARCH);
    let has_other = machine.root.join("etc/ld.so.cache").exists();
    match machine.root.join(musl).exists() && !has_other {
        true => Some("musl".to_owned()),
        false => c_library_version(),
    }
}

/// What the facts mean for an allocator that wins somewhere else; `here`: the machine of the comparison, if that is
/// another one.
#[must_use]
pub fn findings(facts: &Facts, here: Option<&Facts>) -> Vec<Finding> {
    let all = [
        pages(facts),
        sequences(facts),
        c_libraries(facts, here),
        huge_pages(facts),
        mappings(facts),
        address_space(facts),
        overcommit(facts),
    ];
    let all = all.into_iter().flatten();
    all.map(|mut finding| {
        if let Some(other) = here.and_then(|here| difference(finding.name, facts, here)) {
            finding.found += &other;
        }
        finding
    })
    .collect()
}

/// Whether the program at `path`, or of that name in `PATH`, takes a preloaded allocator, as far as its file tells.
///
/// # Errors
/// If the file cannot be read.
pub fn examine_program(path: &Path) -> io::Result<Finding> {
    const NAME: &str = "program";
    let found = on_path(path);
    let path = found.as_deref().unwrap_or(path);
    let title = path.display();
    let Some(elf) = Elf::read(path)? else {
        let found = format!("{title} is a script, or a program of another kind of machine");
        return Ok(weak(NAME, found).remedy("name the program that it starts"));
    };
    if let Some(reason) = suitability::of_elf(&elf, path)? {
        let found = format!("{title} {reason}");
        let remedy = "the allocator linked into the program instead of a preloaded one";
        return Ok(weak(NAME, found).remedy(remedy));
    }
    let linker = elf.interpreter().unwrap_or_default();
    let name = linker.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("ld-musl") {
        let found = format!(
            "{title} is linked with musl ({}): a library that was built for the GNU C library cannot be preloaded",
            linker.display()
        );
        let remedy = "an allocator built with musl, or linked into the program";
        return Ok(weak(NAME, found).remedy(remedy));
    }
    Ok(ok(
        NAME,
        format!(
            "{title} takes a preloaded allocator ({}), unless it opens libraries with RTLD_DEEPBIND (PHP does its \
             extensions), which no file shows",
            linker.display()
        ),
    ))
}

/// What it is on this machine, if that differs.
fn difference(finding: &str, facts: &Facts, here: &Facts) -> Option<String> {
    let name = match finding {
        "page size" => "page_bytes",
        "rseq" => "kernel",
        "THP" => "huge_pages",
        "mappings" => "max_map_count",
        "address space" => "address_space_kib",
        "overcommit" => "overcommit",
        _ => return None,
    };
    let of = |facts: &Facts| match name {
        "huge_pages" => facts.huge_pages().map(str::to_owned),
        _ => facts.text(name).map(str::to_owned),
    };
    let (there, here) = (of(facts)?, of(here)?);
    (there != here).then(|| format!(" (this machine: {name} {here})"))
}

fn ok(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::ok(Section::Deploying, name, found)
}

fn weak(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::weak(Section::Deploying, name, found)
}

fn pages(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "page size";
    let bytes = facts.number("page_bytes")?;
    let kib = bytes / 1024;
    Some(match bytes == PAGE_BYTES_USUAL {
        true => ok(NAME, format!("{kib} KiB, which every allocator is built for")),
        false => weak(
            NAME,
            format!("{kib} KiB: a jemalloc that was built for pages of 4 KiB aborts there at its start"),
        )
        .remedy(format!(
            "a jemalloc built on such a machine, or with --with-lg-page={}, which serves smaller pages too",
            bytes.max(1).ilog2()
        )),
    })
}

/// Restartable sequences, which per-CPU caches are made of.
fn sequences(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "rseq";
    let kernel = facts.kernel()?;
    let release = facts.text("kernel")?;
    if kernel < RSEQ_SINCE {
        let found = format!(
            "kernel {release} has no restartable sequences: Google's tcmalloc has caches per thread there, not per CPU"
        );
        return Some(weak(NAME, found).remedy("a kernel from 4.18 on, or another allocator"));
    }
    if kernel >= TCMALLOC_CRASHES_SINCE {
        let found = format!(
            "kernel {release}: Google's tcmalloc with per-CPU caches is reported to crash from 6.19 on"
        );
        let remedy = "run it there under load before it is relied on, or take gperftools' tcmalloc";
        return Some(weak(NAME, found).remedy(remedy));
    }
    let takes_it = facts
        .glibc()
        .is_some_and(|glibc| glibc >= GLIBC_TAKES_RSEQ_SINCE);
    let mut found = format!("kernel {release} has them, for Google's tcmalloc with per-CPU caches");
    if takes_it {
        found += ", which needs GLIBC_TUNABLES=glibc.pthread.rseq=0 with this C library";
    }
    Some(ok(NAME, found))
}

fn c_libraries(facts: &Facts, here: Option<&Facts>) -> Option<Finding> {
    const NAME: &str = "C library";
    let libc = facts.text("libc")?;
    if facts.is_musl() {
        let found = "musl: its malloc is slow with threads, so another one can win much, but a library that was built \
                     for the GNU C library cannot be preloaded there";
        let remedy = "an allocator built with musl, or linked into the program; compare there";
        return Some(weak(NAME, found).remedy(remedy));
    }
    let older = here.and_then(Facts::glibc).zip(facts.glibc());
    if let Some(((major, minor), _)) = older.filter(|(here, there)| there < here) {
        let found = format!(
            "{libc}, older than the {major}.{minor} here: a library that was built here may want what it has not"
        );
        let remedy =
            "build the allocator there, or take that of its distribution, and compare that version";
        return Some(weak(NAME, found).remedy(remedy));
    }
    Some(ok(NAME, libc))
}

fn huge_pages(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "THP";
    Some(match facts.huge_pages()? {
        "always" => weak(
            NAME,
            "always: jemalloc and tcmalloc hold more memory than under madvise, since the kernel fills huge pages of 2 \
             MiB that they use in part",
        )
        .remedy("compare under the same mode, or echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        "never" => ok(NAME, "never: no huge pages, whatever asks for them"),
        mode => ok(NAME, format!("{mode}: huge pages only for what asks for them")),
    })
}

fn mappings(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "mappings";
    let count = facts.number("max_map_count")?;
    let found = format!(
        "{count} at most (vm.max_map_count): allocators that map large blocks one by one or put guard pages between \
         them (hardened_malloc, scudo, glibc with a low mmap_threshold) meet that with large heaps, and malloc fails"
    );
    Some(match count >= MAPPINGS_USUAL {
        true => ok(NAME, found),
        false => weak(NAME, found).remedy(format!("sysctl -w vm.max_map_count={MAPPINGS_USUAL}")),
    })
}

fn address_space(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "address space";
    Some(match facts.text("address_space_kib")? {
        "unlimited" => ok(
            NAME,
            "without a limit, as allocators that reserve much of it want it",
        ),
        kib => weak(
            NAME,
            format!("{kib} KiB at most (ulimit -v): {RESERVING} fail there while memory is free"),
        )
        .remedy("ulimit -v unlimited (systemd: LimitAS=infinity), or compare under the same limit"),
    })
}

fn overcommit(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "overcommit";
    Some(match facts.number("overcommit")? {
        2 => weak(
            NAME,
            format!("2: the kernel counts what is reserved as if it were used, so {RESERVING} fail early"),
        )
        .remedy("sysctl -w vm.overcommit_memory=0, or compare under 2"),
        mode => ok(NAME, format!("{mode}: only memory that is used counts")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::machine::tests::planted;
    use super::*;

    fn facts(lines: &[&str]) -> Facts {
        Facts::parse(&lines.join("\n")).unwrap()
    }

    fn found(lines: &[&str], name: &str) -> Finding {
        let all = findings(&facts(lines), None);
        all.into_iter().find(|one| one.name == name).unwrap()
    }

    /// Goal: what a machine shows is written and read again as the same facts, and so is what a shell writes; a text
    /// without any is refused.
    #[test]
    fn facts_are_written_and_read() {
        let limits = "Max address space         1073741824           unlimited            bytes\n";
        let (_root, machine) = planted(&[
            (
                "proc/self/smaps",
                "00-01 r--p\nSize:  4 kB\nKernelPageSize:       16 kB\n",
            ),
            ("proc/sys/kernel/osrelease", "6.1.0-49-amd64\n"),
            ("proc/self/limits", limits),
            ("proc/sys/vm/max_map_count", "65530\n"),
            ("proc/sys/vm/overcommit_memory", "2\n"),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "[always] madvise never\n",
            ),
        ]);
        let facts = Facts::of(&machine);
        let text = facts.to_text();
        for line in [
            "page_bytes=16384",
            "address_space_kib=1048576",
            "overcommit=2",
        ] {
            assert!(text.lines().any(|one| one == line), "{text}");
        }
        assert_eq!(Facts::parse(&text), Ok(facts));
        let shell = "page_bytes=4096\nlibc=ldd (Debian GLIBC 2.31-13+deb11u11) 2.31\nmoon=full\n";
        let shell = Facts::parse(shell).unwrap();
        assert_eq!((shell.glibc(), shell.values.len()), (Some((2, 31)), 2));
        assert!(
            Facts::parse("<html>\na=b\n")
                .unwrap_err()
                .contains("page_bytes=4096")
        );
        let own = Facts::of(&Machine::this());
        assert!(own.glibc().is_some_and(|glibc| glibc > (2, 0)), "{own:?}");
    }

    /// Goal: each fact that changes what an allocator does is told with what it means, and a usual machine is well.
    #[test]
    fn each_fact_has_its_meaning() {
        for (line, name, meaning) in [
            ("page_bytes=65536", "page size", "64 KiB: a jemalloc"),
            (
                "kernel=3.10.0-1160.el7",
                "rseq",
                "has no restartable sequences",
            ),
            ("kernel=6.19.2-arch1", "rseq", "crash from 6.19 on"),
            (
                "libc=musl libc (x86_64)",
                "C library",
                "cannot be preloaded",
            ),
            (
                "huge_pages=[always] madvise never",
                "THP",
                "hold more memory",
            ),
            ("max_map_count=1000", "mappings", "malloc fails"),
            (
                "address_space_kib=4194304",
                "address space",
                "fail there while memory is free",
            ),
            ("overcommit=2", "overcommit", "fail early"),
        ] {
            let finding = found(&[line], name);
            assert_eq!(finding.state, State::Weak, "{finding:?}");
            assert!(finding.found.contains(meaning), "{finding:?}");
            assert!(finding.remedy.is_some(), "{finding:?}");
        }
        let usual = [
            "page_bytes=4096",
            "kernel=6.1.0-49-amd64",
            "libc=2.36 (Debian GLIBC 2.36-9)",
            "huge_pages=always [madvise] never",
            "max_map_count=65530",
            "overcommit=0",
            "address_space_kib=unlimited",
        ];
        let usual = facts(&usual);
        let all = findings(&usual, Some(&usual));
        assert_eq!(all.len(), 7);
        assert!(all.iter().all(|one| one.state == State::Ok), "{all:?}");
        let rseq = all.iter().find(|one| one.name == "rseq").unwrap();
        assert!(rseq.found.contains("glibc.pthread.rseq=0"), "{rseq:?}");
    }

    /// Goal: a program that cannot be given an allocator is told by its file, one of musl too.
    #[test]
    fn programs_are_told_by_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("main.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let of = |name: &str, flags: &[&str]| {
            let program = directory.path().join(name);
            let mut compiler = std::process::Command::new("cc");
            let compiler = compiler.args(flags).arg("-o").arg(&program).arg(&source);
            assert!(compiler.status().unwrap().success());
            examine_program(&program).unwrap()
        };
        let plain = of("plain", &[]);
        assert_eq!(plain.state, State::Ok, "{plain:?}");
        let fixed = of("static", &["-static"]);
        assert!(fixed.found.contains("statically linked"), "{fixed:?}");
        let musl = of("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
        assert!(musl.found.contains("linked with musl"), "{musl:?}");
        assert!(examine_program(&source).unwrap().found.contains("script"));
        assert!(examine_program(Path::new("/nowhere")).is_err());
    }

    /// Goal: what differs from the machine of the comparison is told beside it, and an older C library is a finding.
    #[test]
    fn differences_are_told() {
        let here = facts(&[
            "libc=2.36 (x)",
            "huge_pages=always madvise [never]",
            "overcommit=0",
        ]);
        let there = facts(&[
            "libc=2.31 (y)",
            "huge_pages=always [madvise] never",
            "overcommit=0",
        ]);
        let all = findings(&there, Some(&here));
        let of = |name: &str| all.iter().find(|one| one.name == name).unwrap();
        assert_eq!(of("C library").state, State::Weak);
        assert!(of("C library").found.contains("older than the 2.36 here"));
        assert!(
            of("THP")
                .found
                .ends_with("(this machine: huge_pages never)")
        );
        assert!(!of("overcommit").found.contains("this machine"));
    }
}
