//! Where calls of malloc and its family really go: the addresses that the dynamic linker wrote into
//! each object of a process.
//!
//! An object calls malloc through a slot of its own. The C library has slots too, for its own use of malloc, and they
//! are written at the start; so every dynamic program gives a result, even before its first call. A slot that still
//! leads into its own object waits for the first call and says nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Image, Object};
use crate::elf::Elf;

/// What is checked: an allocator has to have all of them, or blocks of one allocator reach another one's free.
const FAMILY: &[&str] = &["malloc", "free", "calloc", "realloc"];

/// A slot that is filled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Call {
    /// The object that calls.
    pub(crate) from: PathBuf,
    /// The called function.
    pub(crate) function: &'static str,
    /// The file it gets to.
    pub(crate) to: PathBuf,
}

/// Slots of the files seen so far: workers have the same files as their master.
#[derive(Debug, Default)]
pub(super) struct Slots {
    of_file: HashMap<(PathBuf, u64), Option<Found>>,
}

#[derive(Clone, Debug)]
struct Found {
    bias_of_first: u64,
    slots: Vec<(&'static str, u64)>,
}

impl Slots {
    /// Every filled slot of the process.
    pub(super) fn calls(&mut self, image: &Image) -> Vec<Call> {
        let mut calls = Vec::new();
        for object in image.objects() {
            let mapping = object.mapping;
            let key = (mapping.file.clone(), mapping.inode);
            let found = self.of_file.entry(key).or_insert_with(|| read(&object));
            let Some(found) = found else { continue };
            // Relative to the first mapping, which is elsewhere in each process.
            let bias = mapping.start.wrapping_sub(found.bias_of_first);
            for &(function, slot) in &found.slots {
                let address = image.word(bias.wrapping_add(slot)).unwrap_or(0);
                match image.file_at(address) {
                    Some(to) if to != mapping.file => calls.push(Call {
                        from: mapping.file.clone(),
                        function,
                        to: to.to_owned(),
                    }),
                    _ => {}
                }
            }
        }
        calls
    }
}

fn read(object: &Object<'_>) -> Option<Found> {
    let elf = Elf::read(&object.readable).ok()??;
    let mapping = object.mapping;
    let bias = elf.load_bias(mapping.start, mapping.file_offset)?;
    let slots = FAMILY
        .iter()
        .flat_map(|&function| {
            elf.slots_of(function)
                .into_iter()
                .map(move |at| (function, at))
        })
        .collect();
    Some(Found {
        bias_of_first: mapping.start.wrapping_sub(bias),
        slots,
    })
}

/// True for the C library of GNU, whose malloc is what a program has by itself.
pub(crate) fn is_c_library(file: &Path) -> bool {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    name.starts_with("libc.so") || name.starts_with("libc-2")
}

#[cfg(test)]
#[path = "tests/interposition.rs"]
mod tests;
