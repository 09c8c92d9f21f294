//! The compiler that an allocator's sources need, looked for before cargo is started: a build script
//! that does not find one gives a page of panic in the place of a sentence.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use super::recipe::Language;

/// A compiler that runs.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    /// What it says it is, e.g. `c++ (Debian 12.2.0) 12.2.0`.
    pub(crate) title: String,
    /// The variable that its build scripts read flags from.
    pub(crate) flags_variable: &'static str,
}

/// Finds the compiler that the build scripts will use: the user's choice, or the system's own.
pub(crate) fn find(language: Language) -> Result<Compiler, String> {
    let (variable, default, flags_variable, title, package) = match language {
        Language::C => ("CC", "cc", "CFLAGS", "C", "gcc"),
        Language::Cpp => ("CXX", "c++", "CXXFLAGS", "C++", "g++"),
    };
    let chosen = std::env::var_os(variable).filter(|words| !words.is_empty());
    let program = chosen.unwrap_or_else(|| OsString::from(default));
    ask(&program)
        .map(|title| Compiler {
            title,
            flags_variable,
        })
        .map_err(|why| {
            format!(
                "it is written in {title} and needs a compiler, but {} {why}: apt-get install \
                 {package}, or name another one in {variable}",
                program.display()
            )
        })
}

/// The first line of what a compiler says of its version.
fn ask(program: &OsString) -> Result<String, String> {
    // The variable may hold a launcher and the compiler behind it.
    let text = program.to_string_lossy();
    let mut words = text.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    let output = command
        .args(words)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("cannot be run ({error})"))?;
    if !output.status.success() {
        return Err(format!("does not work ({})", output.status));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a compiler that is not there, and one that does not work, are told apart.
    #[test]
    fn a_missing_compiler_is_a_reason() {
        let why = ask(&"/nowhere/c++".into()).unwrap_err();
        assert!(why.starts_with("cannot be run"), "{why}");
        let why = ask(&"false".into()).unwrap_err();
        assert!(why.starts_with("does not work"), "{why}");
        assert!(ask(&"env cc".into()).unwrap().contains("cc"));
    }
}
