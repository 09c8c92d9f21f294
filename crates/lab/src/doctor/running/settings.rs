//! The settings that an allocator in a running process was given, and those that mean nothing to it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use millpond_measure::units::format_bytes;
use serde::Serialize;

use super::super::{Finding, Section};
use super::arenas::{GlibcHeap, Parameters};
use super::serving::{Looked, Origin, Served, file_name};
use crate::allocator::{GLIBC, complaint, reader_of_variable};
use crate::elf::Elf;
use crate::presence::Variables;
use crate::presence::in_root;
use crate::suitability::reader_of;

const SECTION: Section = Section::Settings;
const JEMALLOC: &str = "jemalloc";
const CONF: &str = "MALLOC_CONF";
const TUNABLES: &str = "GLIBC_TUNABLES";
/// The variables of our own trimming thread, and its object.
const TRIM: (&str, &str) = ("MILLPOND_TRIM_INTERVAL_MS", "libmillpond-trim.so");
/// Longer settings are none.
const TEXT_BYTES_MAX: usize = 4096;
/// The variables that the C library reads among those with its prefix; some end in an underscore.
const GLIBC_VARIABLES: [&str; 8] = [
    "MALLOC_ARENA_MAX",
    "MALLOC_ARENA_TEST",
    "MALLOC_CHECK_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_PERTURB_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
];
/// Readers of variables that `reader_of_variable` does not have.
const OTHER_READERS: [(&str, &str); 7] = [
    ("MALLOCSTATS", "tcmalloc"),
    ("HEAPPROFILE", "tcmalloc"),
    ("HEAP_PROFILE_", "tcmalloc"),
    ("HEAPCHECK", "tcmalloc"),
    ("PERFTOOLS_", "tcmalloc"),
    ("SCUDO_", "scudo"),
    ("RPMALLOC_", "rpmalloc"),
];

/// A variable of the process that is a setting of an allocator.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Setting {
    /// Its name, or the file that a setting is in.
    pub name: String,
    /// Its value.
    pub value: String,
    /// True if an allocator that serves reads it.
    pub is_read: bool,
    /// Why it means nothing, or what is wrong with it; `None` if nothing is.
    pub complaint: Option<String>,
}

/// The variables of a process as text.
pub(super) struct Environment {
    pub(super) variables: Vec<(String, String)>,
    /// They were overwritten, and these are what the program has now.
    pub(super) is_present: bool,
}

impl Environment {
    pub(super) fn of(variables: Variables) -> Self {
        let (list, is_present) = match variables {
            Variables::Given(list) => (list, false),
            Variables::Present(list) => (list, true),
        };
        let texts = list.iter().map(|one| String::from_utf8_lossy(one));
        Self {
            variables: texts
                .filter_map(|text| {
                    let (name, value) = text.split_once('=')?;
                    Some((name.to_owned(), value.to_owned()))
                })
                .collect(),
            is_present,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.variables.iter();
        all.find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Every setting of an allocator in the environment, in jemalloc's file and in the program.
pub(super) fn read(pid: i32, environment: &Environment, looked: &Looked) -> Vec<Setting> {
    let variables = environment.variables.iter();
    let mut all: Vec<Setting> = variables
        .filter(|(name, value)| name != "LD_PRELOAD" && !value.is_empty())
        .flat_map(|(name, value)| parts(name, value).map(move |part| (name, part)))
        .filter_map(|(name, value)| setting(pid, name, value, looked))
        .collect();
    if looked.serving.has(JEMALLOC) {
        all.extend(compiled_in(looked));
        all.extend(of_file(pid, looked));
    }
    all
}

/// The settings in the value of a variable that holds several: each has its own result.
fn parts<'a>(name: &str, value: &'a str) -> impl Iterator<Item = &'a str> {
    let is_conf = name.ends_with(CONF);
    let is_tunables = name == TUNABLES;
    let separators =
        move |letter: char| (letter == ',' && is_conf) || (letter == ':' && is_tunables);
    let parts = value.split(separators);
    // Tunables of others than malloc are none of its business.
    parts.filter(move |part| !is_tunables || part.starts_with("glibc.malloc."))
}

/// `None` of a variable that is no allocator's.
fn setting(pid: i32, name: &str, value: &str, looked: &Looked) -> Option<Setting> {
    let of = |is_read, complaint| {
        Some(Setting {
            name: name.to_owned(),
            value: value.to_owned(),
            is_read,
            complaint,
        })
    };
    if name == TRIM.0 {
        let mut code = looked.process.code.iter();
        let is_there = code.any(|file| file_name(file) == TRIM.1);
        let without = format!("no effect: {} is not loaded", TRIM.1);
        return of(is_there, (!is_there).then_some(without));
    }
    let readers = reader_of(OsStr::new(name))?;
    let mut others = OTHER_READERS.iter();
    let other = others.find(|(start, _)| name.starts_with(start));
    let family = match reader_of_variable(name) {
        _ if name == "MALLOC_OPTIONS" => None,
        Some(family) => Some(family),
        None => other.map(|&(_, family)| family),
    };
    let Some(family) = family.filter(|family| looked.serving.has(family)) else {
        let reader = family.unwrap_or(readers);
        return of(
            false,
            Some(format!(
                "no effect: {reader} reads it, which does not serve here"
            )),
        );
    };
    let complaint =
        misnamed(name, family, looked).or_else(|| refused(pid, name, value, family, looked));
    of(
        complaint
            .as_deref()
            .is_none_or(|complaint| !complaint.starts_with("no effect")),
        complaint,
    )
}

/// A variable of the right allocator under a name that it does not read.
fn misnamed(name: &str, family: &str, looked: &Looked) -> Option<String> {
    if family == JEMALLOC {
        let read = conf_variables(looked);
        let is_read = read.is_empty() || read.iter().any(|own| own == name);
        return (!is_read).then(|| {
            format!(
                "no effect: this build of jemalloc reads {}",
                read.join(" and ")
            )
        });
    }
    let is_unknown =
        family == GLIBC && name.starts_with("MALLOC_") && !GLIBC_VARIABLES.contains(&name);
    is_unknown.then(|| {
        let longer = format!("{name}_");
        match GLIBC_VARIABLES.contains(&longer.as_str()) {
            true => format!("no effect: the name ends in an underscore, {longer}"),
            false => format!(
                "no effect: the C library reads no such variable; it may be a tunable, \
                 GLIBC_TUNABLES=glibc.malloc.{}",
                name.trim_start_matches("MALLOC_")
                    .trim_end_matches('_')
                    .to_lowercase()
            ),
        }
    })
}

/// How each jemalloc of the process calls its variable.
fn conf_variables(looked: &Looked) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for elf in jemallocs(looked) {
        names.extend(
            elf.name_ending_in(CONF)
                .filter(|name| !names.contains(name)),
        );
    }
    names
}

/// The objects that have a jemalloc in them.
fn jemallocs(looked: &Looked) -> Vec<Elf> {
    let serving = &looked.serving;
    let served = serving.served.iter().filter(|one| one.name == JEMALLOC);
    let served = served.map(|one| one.library.as_deref().unwrap_or(&looked.process.program));
    let inside = serving.inside.iter().filter(|one| one.name == JEMALLOC);
    let files: Vec<&Path> = served
        .chain(inside.map(|one| one.object.as_path()))
        .collect();
    let objects = looked.image.objects();
    let of_them = objects
        .iter()
        .filter(|one| files.contains(&one.mapping.file.as_path()));
    of_them
        .filter_map(|one| Elf::read(&one.readable).ok().flatten())
        .collect()
}

/// The allocator's own objections, where it may be asked: in a short-lived process, apart from this one.
fn refused(
    pid: i32,
    name: &str,
    value: &str,
    family: &'static str,
    looked: &Looked,
) -> Option<String> {
    let mut served = looked.serving.served.iter();
    let one = served.find(|one| one.name == family)?;
    let library = one.library.as_deref()?;
    if !is_trusted(pid, library) {
        return None;
    }
    let asked = (one.origin != Origin::CLibrary).then_some(library);
    let wrong = complaint(family, asked, name, value)?;
    Some(format!("{family} {wrong}"))
}

/// A library of another user must not be loaded into a program of this one's: it has to be root's or this user's alone, and
/// the very file that this system has under the name.
fn is_trusted(pid: i32, library: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let (Ok(here), Ok(there)) = (fs::metadata(library), fs::metadata(in_root(pid, library))) else {
        return false;
    };
    let is_same = (here.dev(), here.ino()) == (there.dev(), there.ino());
    let is_closed = |path: &Path| {
        fs::metadata(path).is_ok_and(|file| {
            let is_sticky = file.is_dir() && file.permissions().mode() & 0o1000 != 0;
            let others_write = file.permissions().mode() & 0o022 != 0 && !is_sticky;
            [0, own].contains(&file.uid()) && !others_write
        })
    };
    is_same && library.ancestors().all(is_closed)
}

/// Settings that the program was built with: `malloc_conf`, behind the prefix of the build's functions.
fn compiled_in(looked: &Looked) -> Option<Setting> {
    let elf = looked.process.file.elf.as_ref()?;
    let objects = looked.image.objects();
    let program = objects
        .iter()
        .find(|one| one.mapping.file == looked.process.program)?;
    let mapping = program.mapping;
    let bias = elf.load_bias(mapping.start, mapping.file_offset)?;
    let names = ["malloc_conf", "_rjem_malloc_conf", "je_malloc_conf"];
    names.into_iter().find_map(|name| {
        let variable = elf.address_of_any(name)?;
        let text = looked.image.word(bias.wrapping_add(variable))?;
        let text = looked.image.text(text, TEXT_BYTES_MAX)?;
        let value = String::from_utf8(text)
            .ok()
            .filter(|text| text.contains(':'))?;
        Some(Setting {
            name: format!("{name} in the program"),
            value,
            is_read: true,
            complaint: None,
        })
    })
}

/// `/etc/malloc.conf`, a link whose target is the settings.
fn of_file(pid: i32, looked: &Looked) -> Option<Setting> {
    let variable = conf_variables(looked).into_iter().next()?;
    let prefix = variable.trim_end_matches(CONF).to_lowercase();
    let path = PathBuf::from(format!("/etc/{prefix}malloc.conf"));
    let value = fs::read_link(in_root(pid, &path)).ok()?;
    Some(Setting {
        name: path.display().to_string(),
        value: value.display().to_string(),
        is_read: true,
        complaint: None,
    })
}

/// As lines of the page; `heap`: what was read of the C library's.
pub(super) fn findings(
    settings: &[Setting],
    environment: Result<&Environment, &String>,
    heap: Option<&GlibcHeap>,
    served: &[Served],
) -> Vec<Finding> {
    let mut all: Vec<Finding> = settings.iter().map(line).collect();
    let environment = match environment {
        Ok(environment) => environment,
        Err(reason) => {
            let found = format!("cannot be read: {reason}");
            let remedy = "as root: sudo millpond doctor --pid PID";
            all.push(Finding::weak(SECTION, "environment", found).remedy(remedy));
            return all;
        }
    };
    let has_one = settings.iter().any(|one| one.is_read);
    let found = match (has_one, environment.is_present) {
        (true, false) => "as the program was started; what it has set since by itself is not seen",
        (false, false) => {
            "no setting of an allocator that serves, as the program was started: its defaults hold, unless the program sets \
             others by itself"
        }
        (true, true) => {
            "the variables that the program has now; what it was started with it has overwritten by its title"
        }
        (false, true) => {
            "no setting of an allocator that serves among the variables that the program has now; what it was started with \
             it has overwritten by its title, so settings may be in force all the same: look at what starts it"
        }
    };
    all.push(Finding::ok(SECTION, "environment", found));
    let is_glibcs = served.iter().any(|one| one.name == GLIBC);
    let parameters = heap.and_then(|heap| heap.parameters).filter(|_| is_glibcs);
    all.extend(parameters.map(|parameters| in_force(settings, parameters)));
    all
}

fn line(setting: &Setting) -> Finding {
    let pair = format!("{}={}", setting.name, setting.value);
    match &setting.complaint {
        None => Finding::ok(SECTION, "in use", pair),
        Some(complaint) => {
            let name = if setting.is_read {
                "in question"
            } else {
                "no effect"
            };
            let found = format!("{pair}: {}", complaint.trim_start_matches("no effect: "));
            let remedy = "correct it, or take it from the environment";
            Finding::weak(SECTION, name, found).remedy(remedy)
        }
    }
}

/// The settings in force in malloc, whatever it was given.
fn in_force(settings: &[Setting], parameters: Parameters) -> Finding {
    let size = |bytes: u64| format_bytes(bytes as f64);
    let arenas = match parameters.arena_max {
        0 => "arena_max 0 (8 for each CPU)".to_owned(),
        most => format!("arena_max {most}"),
    };
    let move_too = match parameters.thresholds_move {
        true => "both grow with what is freed",
        false => "both fixed",
    };
    let found = format!(
        "read from its memory: {arenas}, mmap_threshold {}, trim_threshold {} ({move_too})",
        size(parameters.mmap_threshold),
        size(parameters.trim_threshold),
    );
    let given = settings.iter().filter(|one| one.is_read).find_map(|one| {
        let value = match one.name.as_str() {
            "MALLOC_ARENA_MAX" => Some(one.value.as_str()),
            _ => one.value.strip_prefix("glibc.malloc.arena_max="),
        };
        value?.parse::<u64>().ok()
    });
    match given.filter(|&given| given != parameters.arena_max) {
        None => Finding::ok(SECTION, "in force", found),
        Some(given) => {
            let found = format!("{found}; the environment asked for arena_max {given}");
            let remedy = "the program sets it by mallopt, or changed its variables after the start";
            Finding::weak(SECTION, "in force", found).remedy(remedy)
        }
    }
}
