//! The effects of a deployment machine on the winner: facts that a comparison elsewhere does not meet.
//!
//! The facts are lines of text, `name=value`, so that a shell without this program can write them as well. They come
//! from the machine that is examined, or from a file that was written on another one; then each is compared with this
//! machine, where the comparison ran. Libraries that a program opens with `RTLD_DEEPBIND` are not examined: that is a
//! flag of a call, which no file shows.

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

/// The page size that distributions build allocators for.
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

/// The known facts about a machine, by name.
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

    /// As text; an error, as a sentence, if none of the facts is in it. Unknown facts are skipped.
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

/// The effects of the facts on an allocator that wins somewhere else; `here`: the machine of the comparison, if that is
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

/// Whether the program at `path`, or of that name in `PATH`, takes a preloaded allocator, as far as its file shows.
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

/// Its value on this machine, if that differs.
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
#[path = "tests/deploying.rs"]
mod tests;
