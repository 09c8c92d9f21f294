//! Addresses of sampled heap calls as stacks of names.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::maps::{Maps, Place};
use super::outcome::Gathered;
use super::sampler::Sample;
use super::symbols::Symbols;

/// Turns samples into stacks.
pub(super) struct Reader<'a> {
    pub(super) maps: &'a Maps,
    pub(super) symbols: &'a mut Symbols,
    /// The sampler's own object, whose frames nobody asked for.
    pub(super) own: &'a Path,
}

impl Reader<'_> {
    /// Adds all of `samples` to what was gathered.
    pub(super) fn read(&mut self, samples: &[Sample], mean_bytes: u64, gathered: &mut Gathered) {
        let mut relatives: HashMap<u32, Vec<u32>> = HashMap::new();
        for sample in samples {
            let pids = relatives
                .entry(sample.program)
                .or_insert_with(|| vec![sample.program]);
            if !pids.contains(&sample.pid) {
                pids.push(sample.pid);
            }
        }
        let related = |sample: &Sample| relatives.get(&sample.program).map_or(&[][..], |it| it);
        let mut wanted: HashMap<&Path, HashSet<u64>> = HashMap::new();
        for sample in samples {
            for &address in &sample.frames {
                let place = self
                    .maps
                    .place(sample.pid, related(sample), call_of(address));
                if let Place::File(file, offset) = place {
                    wanted.entry(file).or_default().insert(offset);
                }
            }
        }
        self.symbols.prepare(wanted);
        for sample in samples {
            let frames = self.frames(sample, related(sample));
            gathered.add_allocation(sample, mean_bytes, &frames);
        }
    }

    /// Innermost first, the process last.
    fn frames(&self, sample: &Sample, relatives: &[u32]) -> Vec<String> {
        let mut frames: Vec<String> = Vec::new();
        for &address in &sample.frames {
            match self.maps.place(sample.pid, relatives, call_of(address)) {
                Place::File(file, _) if file == self.own => {}
                Place::File(file, offset) => {
                    frames.extend(self.symbols.names(file, offset).iter().cloned());
                }
                Place::Generated => frames.push("[generated code]".to_owned()),
                // A chain that leads out of the code was none from here on.
                Place::Nowhere => break,
            }
        }
        frames.dedup_by(|one, other| one == other && one.starts_with('['));
        if sample.is_cut {
            frames.push("[deeper than recorded]".to_owned());
        }
        if frames.is_empty() {
            frames.push("[no stack]".to_owned());
        }
        frames.push(self.maps.name(sample.pid, relatives).to_owned());
        frames
    }
}

/// A return address is behind the call, which may be its function's last instruction.
fn call_of(address: u64) -> u64 {
    address.saturating_sub(1)
}
