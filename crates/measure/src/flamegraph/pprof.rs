//! Profiles as pprof files: the protocol buffer of google/pprof's `profile.proto`, compressed.
//!
//! `go tool pprof`, speedscope, Grafana and others read them. Every function is a location of its
//! own; addresses and lines are left out, for stacks of several processes are added up by name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::Stacks;

/// One column of values.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Its kind, as pprof's users know it: `cpu`, `alloc_space`, `alloc_objects`.
    pub name: &'a str,
    /// `nanoseconds`, `bytes` or `count`.
    pub unit: &'a str,
    /// The stacks with their weights.
    pub stacks: &'a Stacks,
    /// Each weight is multiplied by this.
    pub factor: u64,
}

/// Everything in one file. Columns belong together by stack; one that lacks a stack has 0 there.
#[derive(Clone, Copy, Debug)]
pub struct Profile<'a> {
    /// At least one; the last is what pprof shows first.
    pub columns: &'a [Column<'a>],
    /// How often a sample is taken, in units of the last column: nanoseconds or bytes.
    pub period: u64,
    /// When it began.
    pub time_unix_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// A line for the reader.
    pub comment: &'a str,
}

impl Profile<'_> {
    /// The file's bytes.
    ///
    /// # Errors
    /// None in practice: it is compressed in memory.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.message())?;
        encoder.finish()
    }

    fn message(&self) -> Vec<u8> {
        let mut names = Names::default();
        let mut message = Message::default();
        for column in self.columns {
            message.message(1, &names.value_type(column.name, column.unit));
        }
        let stacks: BTreeSet<&str> = self
            .columns
            .iter()
            .flat_map(|column| column.stacks.iter().map(|(stack, _)| stack))
            .collect();
        let mut functions: BTreeMap<&str, u64> = BTreeMap::new();
        for stack in stacks {
            let mut locations: Vec<u64> = Vec::new();
            // Innermost first.
            for name in stack.rsplit(';') {
                let next = functions.len() as u64 + 1;
                locations.push(*functions.entry(name).or_insert(next));
            }
            let weight = |column: &Column<'_>| {
                let weight = column.stacks.weight(stack);
                weight.saturating_mul(column.factor).min(i64::MAX as u64)
            };
            let values: Vec<u64> = self.columns.iter().map(weight).collect();
            let mut sample = Message::default();
            sample.packed(1, &locations);
            sample.packed(2, &values);
            message.message(2, &sample);
        }
        for (&name, &id) in &functions {
            let mut line = Message::default();
            line.number(1, id);
            let mut location = Message::default();
            location.number(1, id);
            location.message(4, &line);
            message.message(4, &location);
            let mut function = Message::default();
            function.number(1, id);
            function.number(2, names.index(name));
            function.number(3, names.index(name));
            message.message(5, &function);
        }
        if let Some(column) = self.columns.last() {
            message.message(11, &names.value_type(column.name, column.unit));
            message.number(14, names.index(column.name));
        }
        message.number(9, self.time_unix_ns);
        message.number(10, self.duration_ns);
        message.number(12, self.period);
        message.packed(13, &[names.index(self.comment)]);
        for name in names.in_order() {
            message.bytes(6, name.as_bytes());
        }
        message.0
    }
}

/// The string table; its first entry is empty.
#[derive(Default)]
struct Names(BTreeMap<String, u64>);

impl Names {
    fn index(&mut self, name: &str) -> u64 {
        if name.is_empty() {
            return 0;
        }
        let next = self.0.len() as u64 + 1;
        *self.0.entry(name.to_owned()).or_insert(next)
    }

    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.index(name));
        message.number(2, self.index(unit));
        message
    }

    fn in_order(&self) -> Vec<&str> {
        let mut names: Vec<(&str, u64)> = self.0.iter().map(|(name, &at)| (&**name, at)).collect();
        names.sort_by_key(|&(_, at)| at);
        let mut list = vec![""];
        list.extend(names.into_iter().map(|(name, _)| name));
        list
    }
}

/// A message in protocol buffers' wire format.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn variable(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number; zero is what is not there.
    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.variable(field << 3);
            self.variable(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.variable(field << 3 | 2);
        self.variable(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn packed(&mut self, field: u64, values: &[u64]) {
        let mut packed = Self::default();
        for &value in values {
            packed.variable(value);
        }
        self.bytes(field, &packed.0);
    }
}

#[cfg(test)]
#[path = "tests/pprof.rs"]
mod tests;
