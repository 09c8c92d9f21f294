//! wrk's Lua scripts: their input, and their outcome.
//!
//! [`Script::load`] runs the file in every state, then `setup` and `init`, and asks the first
//! thread for a request as a proof; `run` lends each worker its `Runner`; [`Script::done`] hands
//! the figures to the script.
//!
//! With the feature `lua` all of that is in `lua`. Without it LuaJIT is not built, and no script can be loaded, and the
//! rest of the generator is unchanged.
#[cfg_attr(not(feature = "lua"), path = "script/absent.rs")]
mod lua;

pub(crate) use lua::Runner;
pub use lua::Script;

use crate::error::LoadError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which script, and its arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScriptConfig {
    /// The Lua file, for messages.
    pub file: PathBuf,
    /// Its text, read once by the caller: a pipe has its text once, and a comparison runs it many times.
    pub source: Arc<[u8]>,
    /// `args[0]` of `init(args)`.
    pub url: String,
    /// `args[1]` and so on.
    pub args: Vec<String>,
    /// `wrk.method`, until the script changes it.
    pub method: String,
    /// `wrk.headers`, likewise.
    pub fields: Vec<(String, String)>,
    /// `wrk.body`, likewise.
    pub body: Option<Vec<u8>>,
    /// Seeds `math.random`, differently in each thread. `None`: not seeded, so that all threads
    /// draw the same numbers, as under wrk.
    pub seed: Option<u64>,
}

impl ScriptConfig {
    /// Reads the text of a script, which may come through a pipe.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn source_of(file: &Path) -> Result<Arc<[u8]>, LoadError> {
        let read = std::fs::read(file);
        read.map(Arc::from).map_err(|error| LoadError::Script {
            file: file.to_owned(),
            problem: format!("the file cannot be read: {error}"),
        })
    }
}

/// The errors of a script during the run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ScriptErrors {
    /// How often.
    pub count: u64,
    /// The message of the first one.
    pub first: Option<String>,
}
