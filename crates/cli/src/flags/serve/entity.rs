//! `millpond serve entity`: the key-value service.

use super::{CommonFlags, announce};
use crate::flags::parse_bytes;
use crate::output::{self, Exit, Failure};
use clap::Args;
use millpond_entity::{EntityConfig, SyncPolicy};
use std::path::PathBuf;

/// Keep values under ids, durably: GET, PUT, DELETE /v0/entity?id=ID
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond serve entity --data ./data
  millpond serve entity --data ./data --sync interval:100 --cache 512MiB
  curl -X PUT --data-binary hello 'http://127.0.0.1:8080/v0/entity?id=greeting'
  curl 'http://127.0.0.1:8080/v0/entity?id=greeting'")]
pub(super) struct EntityFlags {
    #[command(flatten)]
    pub(super) common: CommonFlags,
    /// Where the data lives; the directory is made, the one it stands in has to exist
    #[arg(long, value_name = "DIR", default_value = "millpond-data")]
    data: PathBuf,
    /// When a write is acknowledged: after its sync, or before it, which loses the last MS (or more)
    /// when power fails
    ///
    /// always: when its log is on the disk. Nothing that was acknowledged is lost, whatever fails but
    /// the disk itself. Writes that wait while a sync runs share the next one.
    /// interval:MS: when the kernel has its log, which is synced MS milliseconds later at the most. The
    /// death of the server loses nothing; the loss of power, or a crash of the kernel, loses what was
    /// acknowledged in the last MS milliseconds and while the last sync ran.
    /// off: when the kernel has its log. The death of the server loses nothing; the loss of power loses
    /// what the kernel had not yet written, by default up to half a minute.
    /// Under all three a failed write or sync ends writing: they are refused with 503 until a restart,
    /// which reads back what is really there.
    #[arg(
        long,
        value_name = "always|interval:MS|off",
        default_value_t = SyncPolicy::Always,
        verbatim_doc_comment
    )]
    sync: SyncPolicy,
    /// Memory for values that are read, shared out among the shards; a quarter of it more for the
    /// blocks and indexes of the engine
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "128MiB")]
    cache: u64,
    /// Memory for writes that are not yet in tables
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "48MiB")]
    memtable: u64,
    /// Largest value; a larger one is answered with 413
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64MiB")]
    max_value: u64,
}

impl EntityFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let config = self.common.config("entity")?;
        let entity = EntityConfig {
            sync: self.sync,
            value_bytes_max: self.max_value,
            cache_bytes: self.cache,
            memtable_bytes: self.memtable,
            ..EntityConfig::new(self.data)
        };
        let report = millpond_entity::serve(&entity, &config, |address, engine| {
            announce(address, config.driver);
            let (name, version, linkage) = (engine.name, &engine.version, engine.linkage);
            output::note(format!(
                "{name} {version} ({linkage}) keeps the data in {}",
                entity.data.display()
            ));
        })
        .map_err(Failure::failed)?;
        self.common.finish(&report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::serve::ServerFlags;
    use crate::flags::serve::tests::parse_server;

    /// Goal: the help's defaults are the library's.
    #[test]
    fn defaults_of_the_store_are_the_library_s() {
        let Ok(ServerFlags::Entity(flags)) = parse_server("entity") else {
            panic!("`serve entity` is no server");
        };
        let library = EntityConfig::new(PathBuf::new());
        assert_eq!(flags.sync, library.sync);
        assert_eq!(flags.cache, library.cache_bytes);
        assert_eq!(flags.memtable, library.memtable_bytes);
        assert_eq!(flags.max_value, library.value_bytes_max);
    }

    /// Goal: whoever asks for help about `--sync` reads what each choice can lose.
    #[test]
    fn help_says_what_can_be_lost() {
        let mut command = clap::Command::new("entity");
        command = EntityFlags::augment_args(command);
        // Wrapped as wide as the terminal is.
        let help = command.render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "Nothing that was acknowledged is lost",
            "acknowledged in the last MS milliseconds",
            "what the kernel had not yet written",
            "refused with 503 until a restart",
        ] {
            assert!(help.contains(part), "{part} in {help}");
        }
    }

    /// Goal: what the store cannot do is refused with the flag's name and what to write in its place.
    #[test]
    fn wrong_values_are_named() {
        for (line, part) in [
            ("entity --sync sometimes", "interval:MS"),
            ("entity --cache lots", "--cache"),
        ] {
            let error = parse_server(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
