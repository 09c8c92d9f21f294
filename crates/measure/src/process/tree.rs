//! A process and everything it started: nginx's workers count as nginx.
//!
//! Faults and CPU time of those that have ended are in their parent's sums once it has waited for them.
//! Absent: what nobody in the tree waited for. Where there is a control group, it knows their CPU time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::Duration;

use super::parse::Stat;
use super::{DataDirectory, MemorySample, ProcessError, ProcessSample, read_file, read_stat};

/// A process that replaces itself by another program has no memory to read for a moment, longer on
/// a busy machine: looked at so often before it counts as gone.
const ATTEMPTS: usize = 50;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(1);

/// A process, named by the id of its root, with its descendants and its process group.
///
/// The group matters because a worker whose parent died is no longer a descendant; the lab starts
/// each target as leader of its own group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProcessTree {
    root: u32,
    data: Option<DataDirectory>,
}

/// One look at a tree.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TreeSample {
    /// All processes together.
    pub total: ProcessSample,
    /// Each process by id, with what its ended children did.
    pub processes: BTreeMap<u32, ProcessSample>,
}

impl ProcessTree {
    /// The tree under (and with) `root`.
    #[must_use]
    pub const fn new(root: u32) -> Self {
        Self { root, data: None }
    }

    /// The same with data that lie in memory, which its processes may map: files, in all that is read of them.
    #[must_use]
    pub fn with_data(self, data: Option<DataDirectory>) -> Self {
        Self { data, ..self }
    }

    /// The ids of all living members, the root first if it lives; empty if all are gone.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        members_of(self.root, &all_processes())
    }

    /// Reads all members. One that vanishes in between is left out.
    ///
    /// # Errors
    /// [`ProcessError::Gone`] if none is left, or if the kernel refuses one that lives.
    pub fn sample(&self) -> Result<TreeSample, ProcessError> {
        for _ in 0..ATTEMPTS {
            let members = self.members();
            if members.is_empty() {
                break;
            }
            if let Some(sample) = self.read_all(&members)? {
                return Ok(sample);
            }
            thread::sleep(ATTEMPT_INTERVAL);
        }
        Err(ProcessError::Gone { pid: self.root })
    }

    /// Memory of these members, those left out that have vanished, and how many were read; `None` if none was.
    #[must_use]
    pub fn memory_of(&self, members: &[u32]) -> Option<(MemorySample, usize)> {
        let mut found: Option<(MemorySample, usize)> = None;
        for &pid in members {
            // Of one that the kernel refuses not even RSS is known: the edges of the phase say so.
            if let Ok(one) = MemorySample::read(pid, self.data.as_ref()) {
                found = Some(found.map_or((one, 1), |(sum, count)| (sum.plus(&one), count + 1)));
            }
        }
        found
    }

    /// Reads `members`; `None` if none of them can be read now.
    fn read_all(&self, members: &[u32]) -> Result<Option<TreeSample>, ProcessError> {
        let mut processes = BTreeMap::new();
        for &pid in members {
            match ProcessSample::read_with_ended(pid, self.data.as_ref()) {
                Ok(one) => {
                    processes.insert(pid, one);
                }
                Err(ProcessError::Gone { .. }) => {}
                // What the kernel says of a process that is just ending depends on how far that is.
                Err(_) if !is_alive(pid) => {}
                Err(error) => return Err(error),
            }
        }
        let total = processes
            .values()
            .copied()
            .reduce(|sum, one| sum.plus(&one));
        Ok(total.map(|total| TreeSample { total, processes }))
    }
}

fn is_alive(pid: u32) -> bool {
    read_stat(pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Every process with its parent and group. A process that ends meanwhile is left out.
fn all_processes() -> BTreeMap<u32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let text = read_file(pid, &format!("/proc/{pid}/stat")).ok()?;
            Some((pid, Stat::parse(&text)?))
        })
        .filter(|(_, stat)| !matches!(stat.state, 'Z' | 'X'))
        .collect()
}

fn members_of(root: u32, processes: &BTreeMap<u32, Stat>) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (&pid, stat) in processes {
        children.entry(stat.parent).or_default().push(pid);
    }
    let mut found = BTreeSet::new();
    let group = processes
        .iter()
        .filter(|(_, stat)| stat.process_group == root);
    let mut open: Vec<u32> = group.map(|(&pid, _)| pid).chain([root]).collect();
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found.retain(|pid| processes.contains_key(pid));
    let mut members: Vec<u32> = found.into_iter().collect();
    // The root first: callers show it as the name of the whole.
    members.sort_by_key(|&pid| (pid != root, pid));
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: u32, process_group: u32) -> Stat {
        Stat {
            state: 'S',
            parent,
            process_group,
            minor_faults: 0,
            major_faults: 0,
            user_ticks: 0,
            system_ticks: 0,
            ended: super::super::parse::Ended::default(),
            threads: 1,
        }
    }

    /// Goal: grandchildren and orphans of the group belong to the tree; strangers and the group of
    /// a parent do not.
    #[test]
    fn members_are_descendants_and_the_group() {
        let processes = BTreeMap::from([
            (1, process(0, 1)),
            (50, process(1, 50)),
            (51, process(50, 50)),
            (52, process(51, 52)),
            (53, process(1, 50)),
            (60, process(1, 60)),
            (61, process(60, 60)),
        ]);
        assert_eq!(members_of(50, &processes), [50, 51, 52, 53]);
        assert_eq!(members_of(60, &processes), [60, 61]);
        assert_eq!(members_of(99, &processes), Vec::<u32>::new());
        // The root has ended, its workers live on.
        let mut orphans = processes.clone();
        orphans.remove(&50);
        assert_eq!(members_of(50, &orphans), [51, 52, 53]);
    }
}
