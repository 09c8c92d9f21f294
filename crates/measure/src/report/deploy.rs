//! How the candidates that are recommended get into production: one environment for the shell, systemd, a container and
//! Kubernetes, or a library to link.

use super::terminal::shell_quoted;
use crate::record::{CandidateRounds, ComparisonRecord, PoolSetting, Role};

/// Where objects that are part of this program lie once they are extracted.
const EXTRACTED: &str = "/usr/local/lib";
/// Longer lists are of no use to a deployment.
const SHOWN_MAX: usize = 3;

/// Allocators that can be linked: their name, the crate, and the library for a linker.
const LINKED: [(&str, &str, &str); 5] = [
    ("jemalloc", "tikv-jemallocator", "jemalloc"),
    ("mimalloc", "mimalloc", "mimalloc"),
    ("tcmalloc", "", "tcmalloc_minimal"),
    ("snmalloc", "snmalloc-rs", ""),
    ("rpmalloc", "rpmalloc", ""),
];

/// Packages with an allocator's library: its name, of Debian and Ubuntu, of Fedora, of Alpine.
const PACKAGES: [(&str, &str, &str, &str); 4] = [
    ("jemalloc", "libjemalloc2", "jemalloc", "jemalloc"),
    (
        "tcmalloc",
        "libtcmalloc-minimal4",
        "gperftools-libs",
        "gperftools",
    ),
    ("mimalloc", "libmimalloc2.0", "mimalloc", "mimalloc2"),
    ("tbb", "libtbbmalloc2", "tbb", "onetbb"),
];

/// One candidate and what its processes have to be started with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Deployment {
    pub(crate) candidate: String,
    /// In the order in which they are written.
    pub(crate) variables: Vec<(String, String)>,
    /// The steps to take first, or besides.
    notes: Vec<String>,
    /// The installation in an image with the same packages.
    package: Option<String>,
}

/// Those that the recommendation names, the baseline left out, as it is what runs today.
pub(crate) fn recommended(record: &ComparisonRecord) -> Vec<Deployment> {
    let mut found: Vec<Deployment> = Vec::new();
    for choice in &record.analysis.recommendation.choices {
        let mut all = record.candidates.iter();
        let candidate = all.find(|one| one.name == choice.candidate);
        let candidate = candidate.filter(|one| one.role == Role::Candidate);
        let is_new = found.iter().all(|one| one.candidate != choice.candidate);
        found.extend(candidate.filter(|_| is_new).and_then(Deployment::of));
    }
    found.truncate(SHOWN_MAX);
    found
}

/// The settings of the candidate `name` that the baseline lacks; `None` if that is nothing.
pub(crate) fn beside_baseline(record: &ComparisonRecord, name: &str) -> Option<Deployment> {
    let mut all = record.candidates.iter();
    let mut found = all.find(|one| one.name == name).and_then(Deployment::of)?;
    if let Some(baseline) = of_baseline(record) {
        found
            .variables
            .retain(|one| !baseline.variables.contains(one));
    }
    (!found.variables.is_empty()).then_some(found)
}

/// The settings of the baseline; `None` if that is nothing.
pub(crate) fn of_baseline(record: &ComparisonRecord) -> Option<Deployment> {
    let mut all = record.candidates.iter();
    let baseline = all.find(|one| one.role == Role::Baseline)?;
    Deployment::of(baseline).filter(|one| !one.variables.is_empty())
}

impl Deployment {
    /// `None` of a command of its own, whose start is known to the user.
    fn of(candidate: &CandidateRounds) -> Option<Self> {
        if !candidate.command.is_empty() {
            return None;
        }
        let (mut variables, mut notes) = (Vec::new(), Vec::new());
        let own = own_object(&candidate.allocator);
        if let Some(object) = own {
            variables.push(("LD_PRELOAD".to_owned(), format!("{EXTRACTED}/{object}")));
            notes.push(format!(
                "first: millpond allocators --extract {EXTRACTED}   (the object is part of millpond)"
            ));
        } else if let Some(library) = &candidate.library {
            variables.push(("LD_PRELOAD".to_owned(), library.path.clone()));
            notes.extend(
                candidate
                    .allocator_version
                    .as_ref()
                    .map(|version| format!("the library is {version}")),
            );
        }
        let pairs = candidate.environment.iter();
        variables.extend(pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        }));
        if candidate.pools == Some(PoolSetting::On) {
            notes.push("with --pools on".to_owned());
        }
        let package = package(candidate);
        notes.extend(package.as_ref().map(|(_, note)| note.clone()));
        notes.extend(linked(&candidate.allocator));
        (!variables.is_empty() || !notes.is_empty()).then(|| Self {
            candidate: candidate.name.clone(),
            variables,
            notes,
            package: package.map(|(name, _)| name),
        })
    }

    /// Before the command in a shell.
    pub(crate) fn shell(&self) -> String {
        self.pairs(|name, value| format!("{name}={}", shell_quoted(value)))
            .join(" ")
    }

    /// In `[Service]` of a unit file, a line for each.
    pub(crate) fn systemd(&self) -> Vec<String> {
        self.pairs(|name, value| format!("Environment=\"{name}={value}\""))
    }

    /// In a Dockerfile.
    pub(crate) fn docker(&self) -> String {
        let pairs = self.pairs(|name, value| format!("{name}=\"{value}\""));
        format!("ENV {}", pairs.join(" "))
    }

    fn pairs(&self, format: impl Fn(&str, &str) -> String) -> Vec<String> {
        let all = self.variables.iter();
        all.map(|(name, value)| format(name, value)).collect()
    }

    /// All ways, as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            text += &format!("# {note}\n");
        }
        if self.variables.is_empty() {
            return text;
        }
        let systemd = self.systemd().join("\n");
        let kubernetes =
            self.pairs(|name, value| format!("  - name: {name}\n    value: \"{value}\""));
        let install = self.package.as_ref().map(|package| {
            format!("RUN apt-get update && apt-get install -y --no-install-recommends {package}\n")
        });
        text + &format!(
            "# shell\n{} ./server\n\n# systemd, in [Service]\n{systemd}\n\n# Dockerfile\n{}{}\n\n\
             # Kubernetes, of the container\nenv:\n{}\n\n\
             # in use, with these settings? (without millpond: grep -c {} /proc/PID/maps says only that it is mapped)\n\
             # then watch memory after bursts, p99 and restarts\n\
             sudo millpond doctor --pid PID\n",
            self.shell(),
            install.unwrap_or_default(),
            self.docker(),
            kubernetes.join("\n"),
            self.library_name()
        )
    }

    fn library_name(&self) -> &str {
        let preload = self.variables.iter().find(|(name, _)| name == "LD_PRELOAD");
        let path = preload.map_or("libc", |(_, path)| path.as_str());
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// The object of ours that an allocator of this name is.
fn own_object(allocator: &str) -> Option<&'static str> {
    if allocator.contains("+trim") {
        return Some("libmillpond-trim.so");
    }
    allocator
        .starts_with("mempool")
        .then_some("libmillpond-mempool.so")
}

/// The package of Debian's that has the library, and how others call it; `None` of what no package has.
fn package(candidate: &CandidateRounds) -> Option<(String, String)> {
    let library = candidate.library.as_ref()?;
    let is_systems = ["/usr/lib", "/lib"]
        .iter()
        .any(|place| library.path.starts_with(place));
    let name = candidate.allocator.split([':', '@', '+']).next()?;
    let known = PACKAGES.into_iter().find(|(known, ..)| *known == name);
    let (_, debian, fedora, alpine) = known.filter(|_| is_systems)?;
    // The very package that was compared, where its version says so: `5.3.0-1 (libjemalloc2)`.
    let version = candidate.allocator_version.as_deref().unwrap_or_default();
    let told = version
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    let told = told.map(|(package, _)| package);
    let is_package = |package: &&str| package.starts_with("lib") && !package.contains(' ');
    let own = told.filter(is_package).unwrap_or(debian);
    let note = format!(
        "package: {own} (Debian, Ubuntu), {fedora} (Fedora), {alpine} (Alpine, whose musl is another comparison); paths \
         differ, see: ldconfig -p | grep {name}"
    );
    Some((own.to_owned(), note))
}

/// How a program links it instead of preloading it.
fn linked(allocator: &str) -> Option<String> {
    let (_, package, library) = LINKED
        .into_iter()
        .find(|(name, _, _)| allocator.starts_with(name))?;
    let cargo = (!package.is_empty()).then(|| format!("cargo add {package}"));
    let cmake =
        (!library.is_empty()).then(|| format!("target_link_libraries(server {library}) in CMake"));
    let ways: Vec<String> = cargo.into_iter().chain(cmake).collect();
    Some(format!("or link it: {}", ways.join(", ")))
}

#[cfg(test)]
#[path = "tests/deploy.rs"]
mod tests;
