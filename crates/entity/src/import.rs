//! Lines of JSON (`ndjson`) taken into a stopped directory, through the engine: tags, types and ends are kept.

use std::io::{self, BufRead, Read as _};
use std::path::Path;

use crate::config::EntityConfig;
use crate::data_dir::DataDirError;
use crate::ndjson::parse::{LINE_BYTES_MAX, LineError, ParsedEntity, ParsedLine, parse_line};
use crate::parts;
use crate::record::{Head, Versions, now_ms};
use crate::server::open;
use crate::store::rocksdb::RocksDbStore;
use crate::store::{Durability, Engine as _, Room, Store as _, StoreError, Write};

/// Size of one commit; a larger entity is committed alone.
const BATCH_BYTES: usize = 4 << 20;

/// Result of an import.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Imported {
    /// Entities that were put.
    pub entities: u64,
    /// Entities that have ended meanwhile and were not.
    pub ended: u64,
    /// Places that the export could not read.
    pub skipped: u64,
}

/// Why an import ended before it was complete.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The directory cannot be opened.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The lines cannot be read.
    #[error("line {line} cannot be read: {source}")]
    Read {
        /// From 1.
        line: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A line that is none.
    #[error("line {line} is refused, and {imported} entities before it are imported: {cause}")]
    Line {
        /// From 1.
        line: u64,
        /// Entities that are there.
        imported: u64,
        /// A sentence about "it".
        cause: LineError,
    },
    /// No line is that long.
    #[error("line {line} is longer than any entity's: is it a file of `millpond entity export`?")]
    LongLine {
        /// From 1.
        line: u64,
    },
    /// The last line is missing.
    #[error(
        "the file ends behind line {line} without a last line {{\"end\":true}}: it was cut, and {imported} entities of \
         it are imported"
    )]
    Cut {
        /// How many there are.
        line: u64,
        /// Entities that are there.
        imported: u64,
    },
    /// The disk is full.
    #[error(
        "the disk has no room for line {line}, and {imported} entities before it are imported: make room and import \
         again"
    )]
    NoRoom {
        /// From 1.
        line: u64,
        /// Entities that are there.
        imported: u64,
    },
    /// The engine failed.
    #[error("{cause}; {imported} entities are imported")]
    Store {
        /// Its sentence.
        cause: StoreError,
        /// Entities that are there.
        imported: u64,
    },
}

/// Lines, one after another, with their numbers.
pub struct LineReader<'a> {
    input: &'a mut dyn BufRead,
    /// Of the last line that was read.
    pub number: u64,
    bytes: Vec<u8>,
}

impl<'a> LineReader<'a> {
    /// Reads from the start.
    pub fn new(input: &'a mut dyn BufRead) -> Self {
        Self {
            input,
            number: 0,
            bytes: Vec::new(),
        }
    }

    /// The next line that is not empty; `None` behind the last. `imported` is for the error's sentence.
    ///
    /// # Errors
    /// [`ImportError`] with the line's number.
    pub fn next(&mut self, imported: u64) -> Result<Option<ParsedLine>, ImportError> {
        loop {
            self.bytes.clear();
            self.number += 1;
            let line = self.number;
            let mut limited = (&mut *self.input).take(LINE_BYTES_MAX as u64);
            let read = limited.read_until(b'\n', &mut self.bytes);
            let read_bytes = read.map_err(|source| ImportError::Read { line, source })?;
            if read_bytes == 0 {
                self.number -= 1;
                return Ok(None);
            }
            if read_bytes == LINE_BYTES_MAX && !self.bytes.ends_with(b"\n") {
                return Err(ImportError::LongLine { line });
            }
            if self.bytes.trim_ascii().is_empty() {
                continue;
            }
            let parsed = parse_line(&self.bytes);
            return parsed.map(Some).map_err(|cause| ImportError::Line {
                line,
                imported,
                cause,
            });
        }
    }
}

/// Puts all entities of `input` into `data`, which no server may use and which is created if missing. Entities under
/// other ids stay. Lines without a tag get a new one.
///
/// # Errors
/// [`ImportError`]; entities before the line that it names are there, durably.
pub fn import(data: &Path, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
    let store = open(&EntityConfig::new(data.to_owned()))?;
    let mut import = Import {
        versions: Versions::after(0, store.versions_after_us()),
        store,
        batch: Vec::new(),
        batch_bytes: 0,
        batch_entities: 0,
        imported: Imported::default(),
    };
    let mut lines = LineReader::new(input);
    let mut has_end = false;
    loop {
        match lines.next(import.imported.entities) {
            Ok(Some(ParsedLine::Entity(entity))) => {
                has_end = false;
                import.add(entity, lines.number)?;
            }
            Ok(Some(ParsedLine::End { skipped })) => {
                has_end = true;
                import.imported.skipped += skipped;
            }
            Ok(Some(ParsedLine::Next)) => has_end = false,
            Ok(None) => break,
            Err(error) => {
                import.commit(lines.number)?;
                return Err(import.counted(error));
            }
        }
    }
    import.commit(lines.number)?;
    match has_end {
        true => Ok(import.imported),
        false => Err(ImportError::Cut {
            line: lines.number,
            imported: import.imported.entities,
        }),
    }
}

struct Import {
    store: RocksDbStore,
    versions: Versions,
    /// Ids and records, and parts of values.
    batch: Vec<(Vec<u8>, Vec<u8>)>,
    batch_bytes: usize,
    batch_entities: u64,
    imported: Imported,
}

impl Import {
    fn add(&mut self, entity: ParsedEntity, line: u64) -> Result<(), ImportError> {
        if entity.expires_ms != 0 && entity.expires_ms <= now_ms() {
            self.imported.ended += 1;
            return Ok(());
        }
        let version = entity.version.unwrap_or_else(|| self.versions.unused());
        // No server gives it out again.
        self.store.note_version(version);
        let head = Head {
            version,
            expires_ms: entity.expires_ms,
            content_type: &entity.content_type,
            content_encoding: &entity.content_encoding,
        };
        for (key, record) in parts::writes_of(entity.id, &head, &entity.value) {
            self.batch_bytes += key.len() + record.len();
            self.batch.push((key, record));
        }
        self.batch_entities += 1;
        match self.batch_bytes < BATCH_BYTES {
            true => Ok(()),
            false => self.commit(line),
        }
    }

    /// Makes what was added durable.
    fn commit(&mut self, line: u64) -> Result<(), ImportError> {
        let imported = self.imported.entities;
        if self.batch.is_empty() {
            return Ok(());
        }
        let has_room = self
            .store
            .disk()
            .is_none_or(|disk| disk.room() == Room::Enough);
        if !has_room {
            return Err(ImportError::NoRoom { line, imported });
        }
        let writes = self.batch.iter().map(|(key, record)| Write::Put {
            key,
            head: b"",
            value: record,
        });
        let committed = self
            .store
            .commit(writes, self.batch_bytes, Durability::Synced);
        committed.map_err(|cause| ImportError::Store { cause, imported })?;
        self.imported.entities += std::mem::take(&mut self.batch_entities);
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// The error of a line, after what stood before it was committed.
    fn counted(&self, error: ImportError) -> ImportError {
        match error {
            ImportError::Line { line, cause, .. } => ImportError::Line {
                line,
                imported: self.imported.entities,
                cause,
            },
            other => other,
        }
    }
}
