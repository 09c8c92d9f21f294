//! `millpond version`: which build this is, as a bug report or a record needs it.

use crate::output::{self, Exit, Failure, JsonFile};
use clap::Args;
use serde_json::json;

/// Say which build this is: commit, compiler, features, storage engine
///
/// `millpond --version` prints the number alone.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond version
  millpond version --json build.json")]
pub(crate) struct VersionFlags {
    /// Write it to FILE as well
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
}

/// Features of this command that are compiled in, in the order of its Cargo.toml.
const FEATURES: [(&str, bool); 4] = [
    ("entity", cfg!(feature = "entity")),
    ("distributed", cfg!(feature = "distributed")),
    ("lua", cfg!(feature = "lua")),
    ("symbols", cfg!(feature = "symbols")),
];

/// The embedded storage engine, if there is one.
#[cfg(feature = "entity")]
fn engine() -> Option<(String, serde_json::Value)> {
    let engine = millpond_entity::admin::engine();
    let record = json!({
        "name": engine.name,
        "version": engine.version,
        "linkage": engine.linkage.to_string(),
    });
    Some((engine.to_string(), record))
}

#[cfg(not(feature = "entity"))]
fn engine() -> Option<(String, serde_json::Value)> {
    None
}

impl VersionFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let commit = option_env!("MILLPOND_COMMIT");
        let (compiler, target) = (env!("MILLPOND_COMPILER"), env!("MILLPOND_TARGET"));
        let profile = match cfg!(debug_assertions) {
            true => "debug",
            false => "release",
        };
        let features: Vec<&str> = FEATURES
            .iter()
            .filter_map(|&(name, is_here)| is_here.then_some(name))
            .collect();
        let (engine, engine_record) = engine().unzip();
        output::print(format_args!(
            "millpond {version}\n\
             commit    {}\n\
             build     {profile}, {target}, {compiler}\n\
             features  {}\n\
             engine    {}\n",
            commit.unwrap_or("unknown: not built in a git checkout"),
            features.join(", "),
            engine.as_deref().unwrap_or("none"),
        ))?;
        if let Some(file) = &self.json {
            let record = json!({
                "version": version,
                "commit": commit,
                "profile": profile,
                "target": target,
                "compiler": compiler,
                "features": features,
                "engine": engine_record,
            });
            file.write(&format!("{record:#}\n"))?;
        }
        Ok(Exit::Success)
    }
}
