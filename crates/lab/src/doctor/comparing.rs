//! What `compare` and `profile` need besides.

use super::{Attempts, Finding, Machine, Section};

/// Both are always there: the C library's, and ours inside this program.
const ALWAYS_HERE: [&str; 2] = ["glibc", "mempool"];

pub(super) fn findings(machine: &Machine, attempts: &Attempts) -> Vec<Finding> {
    vec![
        allocators(attempts),
        shared_objects(machine, attempts),
        control_group(attempts),
        perf(machine),
        package_versions(machine),
    ]
}

fn ok(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::ok(Section::Comparing, name, found)
}

fn weak(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::weak(Section::Comparing, name, found)
}

fn allocators(attempts: &Attempts) -> Finding {
    const NAME: &str = "allocators";
    let (here, absent): (Vec<_>, Vec<_>) = attempts
        .allocators
        .iter()
        .partition(|entry| entry.place.is_some());
    let names = |entries: &[&crate::allocator::CatalogueEntry]| {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        names.join(", ")
    };
    let mut found = names(&here);
    if !absent.is_empty() {
        found = format!("{found}; not here: {}", names(&absent));
    }
    match here.iter().any(|entry| !ALWAYS_HERE.contains(&entry.name)) {
        true => ok(NAME, found),
        false => weak(NAME, found).remedy(
            "apt install libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0; `millpond allocators` says how \
             to get each",
        ),
    }
}

/// Where they are written, and from where targets load them.
fn shared_objects(machine: &Machine, attempts: &Attempts) -> Finding {
    const NAME: &str = "temporary files";
    const REMEDY: &str = "TMPDIR=/var/tmp, or any directory that may be written and executed from";
    let place = machine.temporary.display();
    if let Err(error) = &attempts.temporary {
        let found = format!("{place} takes no shared objects for preloading: {error}");
        return Finding::missing(Section::Comparing, NAME, found).remedy(REMEDY);
    }
    let options = machine
        .mount_options(&machine.temporary)
        .unwrap_or_default();
    match options.split(',').any(|option| option == "noexec") {
        true => {
            let found = format!(
                "{place} is mounted noexec: nothing can be preloaded from it, so heap calls are not \
                 counted and mempool is no candidate"
            );
            Finding::missing(Section::Comparing, NAME, found).remedy(REMEDY)
        }
        false => ok(NAME, format!("{place} takes shared objects for preloading")),
    }
}

fn control_group(attempts: &Attempts) -> Finding {
    const NAME: &str = "control groups";
    match &attempts.control_group {
        Ok(found) => ok(NAME, found.clone()),
        Err(reason) => weak(
            NAME,
            format!(
                "{reason}: peak memory and CPU time are added up over the processes that are seen"
            ),
        )
        .remedy("run as root, or by systemd-run --user --scope -p Delegate=yes millpond compare"),
    }
}

fn perf(machine: &Machine) -> Finding {
    match machine.has_program("perf") {
        true => ok("perf", "is here, for CPU flame graphs"),
        false => weak(
            "perf",
            "not here: no CPU flame graphs; allocation flame graphs need none",
        )
        .remedy("apt install linux-perf"),
    }
}

fn package_versions(machine: &Machine) -> Finding {
    match machine.has_program("dpkg-query") {
        true => ok(
            "dpkg-query",
            "is here, for the exact versions of allocators",
        ),
        false => weak(
            "dpkg-query",
            "not here: the version of an allocator is what its file's name says",
        )
        .remedy("nothing has to be done; it comes with Debian and its relatives"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::machine::tests::planted;
    use super::*;

    /// Goal: a machine with nothing but the C library still compares, and is told what to install.
    #[test]
    fn two_allocators_are_a_comparison_but_a_small_one() {
        let mut attempts = Attempts::well();
        assert_eq!(allocators(&attempts).state, State::Ok);
        for entry in &mut attempts.allocators[2..] {
            entry.place = None;
        }
        let finding = allocators(&attempts);
        assert_eq!(finding.state, State::Weak);
        assert_eq!(
            finding.found,
            "glibc, mempool; not here: jemalloc, tcmalloc"
        );
        assert!(finding.remedy.unwrap().contains("libjemalloc2"));
    }

    /// Goal: a temporary directory that nothing can be loaded from is essential, and says where to go.
    #[test]
    fn nothing_can_be_preloaded_from_noexec() {
        let (_root, machine) =
            planted(&[("proc/self/mounts", "a / b rw 0 0\nt /tmp t rw,noexec 0 0")]);
        let finding = shared_objects(&machine, &Attempts::well());
        assert_eq!(finding.state, State::Missing);
        assert!(finding.remedy.unwrap().contains("TMPDIR"));
        let (_root, machine) = planted(&[("proc/self/mounts", "a / b rw 0 0")]);
        assert_eq!(shared_objects(&machine, &Attempts::well()).state, State::Ok);
        let mut attempts = Attempts::well();
        attempts.temporary = Err("read-only".to_owned());
        let finding = shared_objects(&machine, &attempts);
        assert_eq!(finding.state, State::Missing);
        assert!(finding.found.contains("read-only"));
    }

    /// Goal: tools that are absent cost something that is named.
    #[test]
    fn absent_tools_are_named() {
        let (_root, machine) = planted(&[]);
        let mut attempts = Attempts::well();
        attempts.control_group = Err("no".to_owned());
        let weak: Vec<&str> = findings(&machine, &attempts)
            .into_iter()
            .filter(|one| one.state == State::Weak)
            .map(|one| one.name)
            .collect();
        assert_eq!(weak, ["control groups", "perf", "dpkg-query"]);
    }
}
