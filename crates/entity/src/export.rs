//! All entities of a stopped directory as lines of JSON (`ndjson`), also of a damaged one, as far as it can be read.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use crate::config::EntityConfig;
use crate::data_dir::DataDirError;
use crate::ndjson::{Line, write_line};
use crate::parts;
use crate::record::RecordError;
use crate::server::options_of;
use crate::store::accept_loss::Salvage;
use crate::store::{Gap, Loss, StoreError};

/// Written at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Result of an export.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Exported {
    /// Lines of entities.
    pub entities: u64,
    /// Of their ids and values.
    pub bytes: u64,
    /// Entities that have ended and are not written.
    pub ended: u64,
    /// Places and records that cannot be read, and losses.
    pub skipped: u64,
}

/// Something that is not in an export.
#[derive(Debug)]
pub enum Skipped<'a> {
    /// Losses of the directory, as far as they are known before it is read.
    Loss(&'a Loss),
    /// The engine's list of files was made anew from what is there.
    RemadeList,
    /// A range of ids.
    Gap(&'a Gap),
    /// A record that this build cannot read.
    Record {
        /// Of which entity.
        id: &'a [u8],
        /// Why.
        error: RecordError,
    },
}

impl std::fmt::Display for Skipped<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Loss(loss) => write!(formatter, "the directory has lost data: {loss}"),
            Self::RemadeList => formatter.write_str(
                "the engine's list of files cannot be used: all tables and logs that are there are read, and what was \
                 deleted may be among them",
            ),
            Self::Gap(gap) => gap.fmt(formatter),
            Self::Record { id, error } => write!(formatter, "the entity \"{}\": {error}", id.escape_ascii()),
        }
    }
}

/// Why an export ended before it was complete.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The directory cannot be opened.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nowhere to write.
    #[error("the export cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// Writes all entities of `data`, a data directory or a backup, in the order of their ids, and a last line. Unreadable
/// parts are written as `skipped` lines where they are met, and counted in the last line.
///
/// # Errors
/// [`ExportError`]; the output then has no last line.
pub fn export(
    data: &Path,
    out: &mut dyn Write,
    skipped: &mut dyn FnMut(&Skipped<'_>),
) -> Result<Exported, ExportError> {
    let config = EntityConfig::new(data.to_owned());
    let salvage = Salvage::open(data, options_of(&config))?;
    let mut out = BufWriter::with_capacity(BLOCK_BYTES, out);
    let mut exported = Exported::default();
    // Two closures count.
    let skipped_count = std::cell::Cell::new(0_u64);
    let skipped = std::cell::RefCell::new(|one: &Skipped<'_>| {
        skipped_count.set(skipped_count.get() + 1);
        skipped(one);
    });
    if let Some(loss) = &salvage.loss {
        skipped.borrow_mut()(&Skipped::Loss(loss));
    }
    if salvage.is_list_remade {
        skipped.borrow_mut()(&Skipped::RemadeList);
    }
    let mut failed = None;
    salvage.visit(
        &mut |id, record| {
            if parts::is_part(id) {
                return ControlFlow::Break(());
            }
            let joined = salvage.joined(record);
            let line = joined.as_ref().map_err(|&error| error);
            let written = match line.and_then(|record| Line::of(id, record)) {
                Ok(Line::Entity { head, .. }) if head.is_expired() => {
                    exported.ended += 1;
                    Ok(())
                }
                Ok(line) => {
                    exported.entities += 1;
                    if let Line::Entity { value, .. } = &line {
                        exported.bytes += (id.len() + value.len()) as u64;
                    }
                    write_line(&line, &mut out)
                }
                Err(error) => {
                    skipped.borrow_mut()(&Skipped::Record { id, error });
                    Ok(())
                }
            };
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        },
        &mut |gap| skipped.borrow_mut()(&Skipped::Gap(gap)),
    )?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    exported.skipped = skipped_count.get();
    match exported.skipped {
        0 => write_line(&Line::End, &mut out)?,
        skipped => writeln!(out, "{{\"end\":true,\"skipped\":{skipped}}}")?,
    }
    out.flush()?;
    Ok(exported)
}
