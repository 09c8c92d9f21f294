//! The malloc that a running process calls.
//!
//! By the addresses that the dynamic linker wrote (`presence::interposition`): a library that is mapped serves nothing by
//! that alone, and the variable that should have preloaded one proves nothing either.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::{Finding, Section};
use crate::allocator::{
    GLIBC, MEMPOOL, banner, family_by_symbol, name_of_library, version_of_mapped,
};
use crate::elf::Elf;
use crate::memory_owners::runtime_of;
use crate::presence::interposition::is_c_library;
use crate::presence::{Image, Object, in_root};
use crate::presence::{Process, Seen};
use crate::suitability::Unsuitable;

const SECTION: Section = Section::Allocator;
/// The name of musl's C library.
const MUSL: &str = "musl";
/// The suffix that the kernel adds to the name of a deleted file.
const DELETED: &str = " (deleted)";
/// Function that only the C library of GNU has.
const GLIBC_SYMBOL: &str = "gnu_get_libc_version";
/// Functions inside a program that is linked statically with a C library, and whose they are.
const STATIC_SYMBOLS: [(&str, &str); 3] = [
    ("__libc_mallopt", GLIBC),
    ("__libc_malloc_impl", MUSL),
    ("__expand_heap", MUSL),
];
/// Texts that say the same where symbols were stripped: all of a line have to be there.
const TEXTS: [(&str, &[&str]); 3] = [
    ("jemalloc", &["<jemalloc>: ", "dirty_decay_ms"]),
    ("mimalloc", &["mimalloc: error: ", "mimalloc: warning: "]),
    (GLIBC, &["malloc(): corrupted top size"]),
];

/// How a malloc became the one that is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `LD_PRELOAD` names it.
    Preloaded,
    /// A library that the program is linked with, or has loaded.
    Linked,
    /// One of these: the program has overwritten the variables that it was started with, or they cannot be read.
    Library,
    /// The program defines it.
    Program,
    /// That of the C library.
    CLibrary,
}

/// A malloc that is called.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Served {
    /// `jemalloc`, or the file's name where that says nothing.
    pub name: String,
    /// As exactly as it is known.
    pub version: Option<String>,
    /// As the process has it mapped; `None` of a part of the program.
    pub library: Option<PathBuf>,
    /// How it came there.
    pub origin: Origin,
    /// The objects whose calls get there.
    pub callers: Vec<PathBuf>,
    /// Its file is no longer the one that was mapped.
    pub is_replaced: bool,
}

/// An allocator that is a part of an object, for that object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Inside {
    /// `jemalloc`.
    pub name: String,
    /// As exactly as it is known.
    pub version: Option<String>,
    /// The object that contains it.
    pub object: PathBuf,
}

/// The allocator that serves, those that are only mapped, and the one that should serve.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Serving {
    /// The one with most callers first; more than one is a mixture.
    pub served: Vec<Served>,
    /// Allocators inside the program and its libraries.
    pub inside: Vec<Inside>,
    /// Libraries of allocators that are mapped, and whose malloc is not called.
    pub idle: Vec<PathBuf>,
    /// Objects that `LD_PRELOAD` names and that are not mapped, with the reason.
    pub not_loaded: Vec<(PathBuf, String)>,
    /// Heaps of runtimes, which are not malloc's.
    pub runtimes: Vec<String>,
    /// Why no preloaded library can serve the program.
    pub unsuitable: Option<String>,
}

/// The data read for it.
pub(super) struct Looked {
    pub(super) serving: Serving,
    pub(super) process: Process,
    pub(super) image: Image,
}

impl Served {
    /// Name and version.
    #[must_use]
    pub fn title(&self) -> String {
        titled(&self.name, self.version.as_deref())
    }
}

fn titled(name: &str, version: Option<&str>) -> String {
    match version {
        // Two programs have that name.
        Some(version) if name == "tcmalloc" && !version.starts_with("gperf") => {
            format!("{name} (gperftools) {version}")
        }
        Some(version) => format!("{name} {version}"),
        None => name.to_owned(),
    }
}

impl Serving {
    /// True if an allocator of this family serves anything.
    pub(super) fn has(&self, family: &str) -> bool {
        let served = self.served.iter().map(|one| &one.name);
        let inside = self.inside.iter().map(|one| &one.name);
        served.chain(inside).any(|name| name == family)
    }

    /// Which allocator serves, in a few words.
    #[must_use]
    pub fn title(&self) -> String {
        match (&self.runtimes[..], self.served.is_empty()) {
            ([], _) => self.malloc_title(),
            ([first, ..], true) => format!("no malloc is called; its heap is that of {first}"),
            ([first, ..], false) => format!("{}, beside the heap of {first}", self.malloc_title()),
        }
    }

    fn malloc_title(&self) -> String {
        match &self.served[..] {
            [] => "Which malloc serves it could not be determined".to_owned(),
            [one] => match self.inside.iter().find(|inside| inside.name != one.name) {
                Some(inside) => format!(
                    "{} serves malloc, and {} inside {} what that has for itself",
                    one.title(),
                    titled(&inside.name, inside.version.as_deref()),
                    file_name(&inside.object),
                ),
                None => format!("{} serves malloc", one.title()),
            },
            [first, rest @ ..] => {
                let rest: Vec<String> = rest.iter().map(Served::title).collect();
                format!(
                    "{} serves a part of malloc, and {} the rest",
                    first.title(),
                    rest.join(", ")
                )
            }
        }
    }

    /// The operator's probable intention that is not met: a sentence.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let names = |files: &mut dyn Iterator<Item = &PathBuf>| {
            files.map(|file| file_name(file)).collect::<Vec<_>>()
        };
        let missing = names(&mut self.not_loaded.iter().map(|(file, _)| file));
        if !missing.is_empty() {
            return Some(format!(
                "NOT in use: {}, which LD_PRELOAD names",
                missing.join(", ")
            ));
        }
        let idle = names(&mut self.idle.iter());
        (!idle.is_empty()).then(|| {
            format!(
                "NOT in use: {}, which is mapped and not called",
                idle.join(", ")
            )
        })
    }
}

/// Examines process `pid`, whose `LD_PRELOAD` is `preload`; `None` if that is not known. The error is a reason.
pub(super) fn look(pid: i32, preload: Option<&str>) -> Result<Looked, String> {
    let image = Image::open(pid).map_err(|error| error.to_string())?;
    let process =
        Process::look(pid, &mut Seen::default(), None).map_err(|error| error.to_string())?;
    let wanted = wanted(pid, preload.unwrap_or_default());
    let files = Files::read(pid, &image, &process);
    let mut serving = Serving {
        served: files.served(&process, &wanted, preload.is_some()),
        inside: files.inside(),
        unsuitable: process.file.unsuitable.map(|reason| reason.to_string()),
        runtimes: runtimes(&process),
        ..Serving::default()
    };
    serving.idle = files.idle(&serving);
    serving.not_loaded = not_loaded(pid, &wanted, &image, &process);
    Ok(Looked {
        serving,
        process,
        image,
    })
}

/// The objects that should be preloaded, in the process's own names.
fn wanted(pid: i32, preload: &str) -> Vec<PathBuf> {
    let file = in_root(pid, Path::new("/etc/ld.so.preload"));
    let for_all = fs::read_to_string(file).unwrap_or_default();
    let separators = |letter: char| letter == ':' || letter.is_whitespace();
    let words = preload
        .split(separators)
        .chain(for_all.split_ascii_whitespace());
    words
        .filter(|word| !word.is_empty())
        .map(PathBuf::from)
        .collect()
}

/// The objects of a process, each read once.
struct Files<'a> {
    objects: Vec<(Object<'a>, Option<Elf>)>,
    program: &'a Path,
    /// The program's file as it runs, whatever has become of its name.
    readable: PathBuf,
    program_elf: Option<&'a Elf>,
}

impl<'a> Files<'a> {
    fn read(pid: i32, image: &'a Image, process: &'a Process) -> Self {
        let objects = image.objects().into_iter();
        let is_library = |object: &Object<'_>| object.mapping.file != process.program;
        Self {
            objects: objects
                .filter(is_library)
                .map(|object| {
                    let elf = Elf::read(&object.readable).ok().flatten();
                    (object, elf)
                })
                .collect(),
            program: &process.program,
            readable: PathBuf::from(format!("/proc/{pid}/exe")),
            program_elf: process.file.elf.as_ref(),
        }
    }

    /// Every malloc that is called.
    fn served(&self, process: &Process, wanted: &[PathBuf], is_known: bool) -> Vec<Served> {
        let mut by_target: BTreeMap<&Path, Vec<PathBuf>> = BTreeMap::new();
        let is_allocators = |file: &Path| name_of_library(file).is_some() && !is_c_library(file);
        // An allocator's own calls (its proxy, or the one behind it) are not the program's.
        let calls = process.calls.iter();
        for call in calls.filter(|call| !is_allocators(&call.from)) {
            let callers = by_target.entry(&call.to).or_default();
            if !callers.contains(&call.from) {
                callers.push(call.from.clone());
            }
        }
        let mut served: Vec<Served> = by_target
            .into_iter()
            .map(|(target, callers)| self.target(target, callers, wanted))
            .collect();
        served.sort_by_key(|one| std::cmp::Reverse(one.callers.len()));
        if served.is_empty() {
            let only = self
                .only_one()
                .map(|one| self.target(one, Vec::new(), wanted));
            served.extend(self.own(process).or(only));
        }
        for one in served.iter_mut().filter(|_| !is_known) {
            if one.origin == Origin::Linked {
                one.origin = Origin::Library;
            }
        }
        served
    }

    /// Before the first call nothing is bound; but what alone defines malloc will be called.
    fn only_one(&self) -> Option<&Path> {
        let is_programs = self.program_elf.is_none_or(|elf| elf.exports("malloc"));
        let mut defining = self.objects.iter().filter(|(object, elf)| {
            let is_linker = file_name(&object.mapping.file).starts_with("ld-linux");
            !is_linker && elf.as_ref().is_some_and(|elf| elf.exports("malloc"))
        });
        let (one, _) = defining.next()?;
        let is_only = !is_programs && defining.next().is_none();
        is_only.then_some(one.mapping.file.as_path())
    }

    fn target(&self, target: &Path, callers: Vec<PathBuf>, wanted: &[PathBuf]) -> Served {
        let is_replaced = target.to_string_lossy().ends_with(DELETED);
        if target == self.program {
            let (name, version) = self
                .in_program()
                .unwrap_or_else(|| ("the program's own malloc".to_owned(), None));
            return Served {
                name,
                version,
                library: None,
                origin: Origin::Program,
                callers,
                is_replaced,
            };
        }
        let mut objects = self.objects.iter();
        let known = objects.find(|(object, _)| object.mapping.file == target);
        let (name, version) = match known {
            Some((object, elf)) => named(object, elf.as_ref()),
            None => by_name(target),
        };
        let is_system = [GLIBC, MUSL].contains(&name.as_str());
        let is_wanted = wanted.iter().any(|want| is_named_so(want, target));
        Served {
            name,
            version,
            library: Some(target.to_owned()),
            origin: match (is_system, is_wanted) {
                (true, _) => Origin::CLibrary,
                (false, true) => Origin::Preloaded,
                (false, false) => Origin::Linked,
            },
            callers,
            is_replaced,
        }
    }

    /// The malloc of a program that has no other object.
    fn own(&self, process: &Process) -> Option<Served> {
        let elf = self.program_elf?;
        if process.file.unsuitable != Some(Unsuitable::Static) {
            return None;
        }
        let (name, version) = self.in_program().or_else(|| {
            let mut symbols = STATIC_SYMBOLS.iter();
            let found = symbols.find(|(symbol, _)| elf.contains(symbol));
            let by_text = || (!elf.has_symbols()).then(|| by_text(elf)).flatten();
            let name = found.map(|&(_, name)| name).or_else(by_text)?;
            Some((name.to_owned(), None))
        })?;
        Some(Served {
            name,
            version,
            library: None,
            origin: Origin::Program,
            callers: vec![self.program.to_owned()],
            is_replaced: false,
        })
    }

    /// The allocator that the program has inside.
    fn in_program(&self) -> Option<(String, Option<String>)> {
        let elf = self.program_elf?;
        let by_text = || (!elf.has_symbols()).then(|| by_text(elf)).flatten();
        let name = family_by_symbol(|symbol| elf.contains(symbol))
            .or_else(by_text)
            .filter(|name| *name != GLIBC)?;
        // The names of programs say nothing of an allocator's version.
        let version = version_of_mapped(Path::new(""), &self.readable);
        Some((name.to_owned(), version))
    }

    /// Allocators that objects have for themselves: malloc is another's there.
    fn inside(&self) -> Vec<Inside> {
        let exports = |elf: &Elf| elf.exports("malloc");
        let own = self.in_program();
        let own = own.filter(|_| !self.program_elf.is_some_and(exports));
        let own = own.map(|(name, version)| Inside {
            name,
            version,
            object: self.program.to_owned(),
        });
        let others = self.objects.iter().filter_map(|(object, elf)| {
            let elf = elf.as_ref().filter(|elf| !exports(elf))?;
            if name_of_library(&object.mapping.file).is_some() {
                return None;
            }
            let name = family_by_symbol(|symbol| elf.contains(symbol))?;
            Some(Inside {
                name: name.to_owned(),
                version: None,
                object: object.mapping.file.clone(),
            })
        });
        own.into_iter().chain(others).collect()
    }

    /// Libraries that could serve malloc, and do not.
    fn idle(&self, serving: &Serving) -> Vec<PathBuf> {
        let is_called = |file: &Path| {
            let mut served = serving.served.iter();
            served.any(|one| one.library.as_deref() == Some(file))
        };
        let could = self.objects.iter().filter(|(object, elf)| {
            let file = &object.mapping.file;
            let name = file_name(file);
            let is_system = is_c_library(file) || name.starts_with("ld-");
            let exports = elf.as_ref().is_some_and(|elf| elf.exports("malloc"));
            // A second library of one that serves, as behind the proxy of tbb.
            let family = name_of_library(file);
            let is_second = family.is_some_and(|family| {
                let mut libraries = serving
                    .served
                    .iter()
                    .filter_map(|one| one.library.as_deref());
                libraries.any(|library| name_of_library(library) == Some(family))
            });
            !is_system && !is_second && (exports || family.is_some()) && !is_called(file)
        });
        could
            .map(|(object, _)| object.mapping.file.clone())
            .collect()
    }
}

/// The name and version of a library that is called.
fn named(object: &Object<'_>, elf: Option<&Elf>) -> (String, Option<String>) {
    let file = &object.mapping.file;
    let exports = |symbol: &str| elf.is_some_and(|elf| elf.exports(symbol));
    if exports(GLIBC_SYMBOL) {
        return (GLIBC.to_owned(), banner(&object.readable));
    }
    let is_musl = is_c_library(file) || file_name(file).starts_with("ld-musl");
    if is_musl {
        let version = version_of_mapped(file, &object.readable);
        return (MUSL.to_owned(), version);
    }
    let family = family_by_symbol(exports);
    let own = file_name(file).contains("libmillpond-mempool");
    let family = family.or(own.then_some(MEMPOOL));
    let (name, _) = by_name(file);
    let name = family.map_or(name, str::to_owned);
    (name, version_of_mapped(file, &object.readable))
}

/// The same of a file that cannot be read.
fn by_name(file: &Path) -> (String, Option<String>) {
    let known = name_of_library(file).map(str::to_owned);
    let libc = || is_c_library(file).then(|| GLIBC.to_owned());
    (known.or_else(libc).unwrap_or_else(|| file_name(file)), None)
}

fn by_text(elf: &Elf) -> Option<&'static str> {
    let mut all = TEXTS.iter();
    let has_all = |texts: &&[&str]| texts.iter().all(|text| elf.holds(text.as_bytes()));
    all.find(|(_, texts)| has_all(texts)).map(|&(name, _)| name)
}

/// The last part of a path, as far as the kernel did not add to it.
pub(super) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy();
    name.strip_suffix(DELETED).unwrap_or(&name).to_owned()
}

/// `libjemalloc.so.2` is mapped under its own name, or a longer one that it links to.
fn is_named_so(wanted: &Path, mapped: &Path) -> bool {
    let (wanted, mapped) = (file_name(wanted), file_name(mapped));
    mapped == wanted
        || mapped
            .strip_prefix(&wanted)
            .is_some_and(|rest| rest.starts_with('.'))
}

/// The objects that should be preloaded and are not mapped, with the likely reason.
fn not_loaded(
    pid: i32,
    wanted: &[PathBuf],
    image: &Image,
    process: &Process,
) -> Vec<(PathBuf, String)> {
    let is_mapped = |want: &Path| {
        let inode = fs::metadata(in_root(pid, want)).ok().map(|file| file.ino());
        let by_file = |inode| image.mappings.iter().any(|one| one.inode == inode);
        let by_name = || process.code.iter().any(|file| is_named_so(want, file));
        inode.is_some_and(by_file) || by_name()
    };
    let missing = wanted.iter().filter(|want| !is_mapped(want));
    missing
        .map(|want| (want.clone(), why_not(pid, want, process)))
        .collect()
}

fn why_not(pid: i32, want: &Path, process: &Process) -> String {
    if let Some(reason) = process.file.unsuitable {
        return format!("the program {reason}");
    }
    let readable = in_root(pid, want);
    if want.is_absolute() && !readable.exists() {
        return "there is no such file where the process runs".to_owned();
    }
    let elf = Elf::read(&readable).ok().flatten();
    if elf.is_some_and(|elf| !elf.is_for_this_machine() || !elf.is_shared()) {
        return "it is no shared object for this machine".to_owned();
    }
    let is_musl = |file: &PathBuf| file_name(file).contains("musl");
    if process.code.iter().any(is_musl) {
        return "the program is musl's, which cannot load a library that was built for the GNU C library"
            .to_owned();
    }
    "the dynamic linker could not load it, and said so in the first lines of the process's log, or the variable was set \
     after the start"
        .to_owned()
}

/// Runtimes with heaps of their own: of the program, and of its libraries.
fn runtimes(process: &Process) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    if process.file.unsuitable == Some(Unsuitable::Go) {
        found.push("Go (the runtime's heap)".to_owned());
    }
    for file in &process.code {
        let runtime = runtime_of(&file_name(file)).map(str::to_owned);
        found.extend(runtime.filter(|runtime| !found.contains(runtime)));
    }
    found
}

/// The role of `malloc` in such a runtime.
fn served_part(runtime: &str, python_malloc: Option<&str>) -> &'static str {
    match runtime.split(' ').next().unwrap_or_default() {
        "Go" => {
            "Go objects are in the runtime's heap (GOGC, GOMEMLIMIT); malloc serves only what cgo calls in C"
        }
        "JVM" => {
            "Java objects are in the JVM's heap (-Xmx), as are code and metadata; malloc serves native memory: the JVM's \
             own structures, direct buffers, JNI (jcmd PID VM.native_memory tells, with \
             -XX:NativeMemoryTracking=summary)"
        }
        "V8" => {
            "JavaScript objects are in V8's heap (--max-old-space-size); malloc serves Buffers and native code"
        }
        "PHP" => {
            "PHP's values are in the Zend heap; malloc serves the rest, and all with USE_ZEND_ALLOC=0"
        }
        "CPython" => match python_malloc {
            Some("malloc" | "malloc_debug") => "PYTHONMALLOC gives objects of all sizes to malloc",
            _ => {
                "objects of up to 512 bytes are in CPython's own arenas; malloc serves larger ones and native code, and all \
                 with PYTHONMALLOC=malloc"
            }
        },
        "Ruby" => {
            "slots of objects are in Ruby's heap; malloc serves what they hold (strings, arrays)"
        }
        "Erlang" => {
            "the BEAM has allocators of its own (erl +M flags); malloc serves what they hand on"
        }
        ".NET" => {
            "managed objects are in the runtime's heap (DOTNET_GCHeapHardLimit); malloc serves native code"
        }
        _ => "objects of the language are in its runtime's heap; malloc serves native code",
    }
}

/// The findings, as lines of the page.
pub(super) fn findings(looked: &Looked, python_malloc: Option<&str>) -> Vec<Finding> {
    let serving = &looked.serving;
    let mut all = vec![malloc(looked)];
    for (file, reason) in &serving.not_loaded {
        let found = format!(
            "LD_PRELOAD names {}, which is not mapped: {reason}",
            file.display()
        );
        let remedy = format!(
            "LD_PRELOAD={} /bin/true   in the same place says what the dynamic linker makes of it",
            file.display()
        );
        all.push(Finding::weak(SECTION, "not loaded", found).remedy(remedy));
    }
    all.extend(serving.idle.iter().map(|file| idle(file, serving)));
    all.extend(serving.inside.iter().map(inside));
    let replaced = serving.served.iter().filter(|one| one.is_replaced);
    all.extend(replaced.map(|one| {
        let found = format!(
            "the file of {} was replaced or removed since the process started: it runs the old one",
            one.name
        );
        Finding::weak(SECTION, "replaced", found).remedy("restart the process to run the new one")
    }));
    all.extend(serving.runtimes.iter().map(|runtime| {
        let found = format!("{runtime}: {}", served_part(runtime, python_malloc));
        Finding::ok(SECTION, "runtime", found)
    }));
    all
}

fn malloc(looked: &Looked) -> Finding {
    const NAME: &str = "malloc";
    let serving = &looked.serving;
    match &serving.served[..] {
        [] => nothing_served(looked),
        [one] => {
            let objects = one.callers.len();
            let place = match (&one.library, one.origin) {
                (None, _) if looked.process.file.unsuitable == Some(Unsuitable::Static) => {
                    "the program is linked statically, and has it inside".to_owned()
                }
                (None, _) => "the program defines it, for itself and every library".to_owned(),
                (Some(library), origin) => {
                    let way = match origin {
                        Origin::Preloaded => ", preloaded",
                        Origin::Linked => ", linked or loaded by the program",
                        Origin::Library => ", preloaded, linked or loaded",
                        Origin::Program | Origin::CLibrary => "",
                    };
                    let calls = match objects {
                        0 => "no call is bound yet, and nothing else defines malloc".to_owned(),
                        1 => "every bound call of malloc, calloc, realloc and free goes there, from 1 object".to_owned(),
                        count => format!(
                            "every bound call of malloc, calloc, realloc and free goes there, from {count} objects"
                        ),
                    };
                    format!("{}{way}; {calls}", library.display())
                }
            };
            Finding::ok(SECTION, NAME, format!("{}: {place}", one.title()))
        }
        several => {
            let each = several.iter().map(|one| {
                let callers: Vec<String> =
                    one.callers.iter().map(|caller| file_name(caller)).collect();
                let more = callers.len().saturating_sub(3);
                let shown = callers.get(..callers.len().min(3)).unwrap_or_default();
                let more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                format!("{} serves {}{more}", one.title(), shown.join(", "))
            });
            let found = format!(
                "several: {}; a block of one must never meet the other's free",
                each.collect::<Vec<_>>().join("; ")
            );
            let remedy = "preload one for all, or load libraries without RTLD_DEEPBIND and without an allocator of their own";
            Finding::weak(SECTION, NAME, found).remedy(remedy)
        }
    }
}

fn nothing_served(looked: &Looked) -> Finding {
    const NAME: &str = "malloc";
    let is = |reason| looked.process.file.unsuitable == Some(reason);
    if is(Unsuitable::Go) {
        return Finding::ok(
            SECTION,
            NAME,
            "none is called: the program is Go's, without cgo",
        );
    }
    let (found, remedy) = if looked.process.file.elf.is_none() {
        (
            "cannot be determined: the program is not a 64-bit one",
            "look at its memory maps by hand: less /proc/PID/maps",
        )
    } else if is(Unsuitable::Static) {
        (
            "cannot be determined: the program is linked statically, and nothing in it names an allocator",
            "ask who built it, or look at a build with symbols",
        )
    } else {
        (
            "cannot be determined: no call of malloc could be followed, as the files of the process cannot be read",
            "as root: sudo millpond doctor --pid PID",
        )
    };
    Finding::missing(SECTION, NAME, found).remedy(remedy)
}

fn idle(file: &Path, serving: &Serving) -> Finding {
    let who = match serving.served.first() {
        Some(one) => one.title(),
        None => "another".to_owned(),
    };
    let is_programs = serving
        .served
        .iter()
        .any(|one| one.origin == Origin::Program);
    let reason = match is_programs {
        true => "the program defines malloc itself, which the dynamic linker finds first",
        false => {
            "it was loaded after the C library, or by dlopen, or is linked behind it, so the dynamic linker found the other \
             first"
        }
    };
    let found = format!(
        "{} is mapped, but its malloc is NOT called: {who} serves; {reason}",
        file.display()
    );
    let remedy = match is_programs {
        true => "build the program without its own malloc".to_owned(),
        false => format!("start it with LD_PRELOAD={}", file.display()),
    };
    Finding::weak(SECTION, "not called", found).remedy(remedy)
}

fn inside(inside: &Inside) -> Finding {
    let found = format!(
        "{} has {} inside, for what it allocates by that (a Rust program: all of Rust's); its malloc is another function",
        file_name(&inside.object),
        titled(&inside.name, inside.version.as_deref()),
    );
    Finding::ok(SECTION, "inside", found)
}
