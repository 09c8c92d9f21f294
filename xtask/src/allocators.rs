//! `cargo xtask allocators`: the allocators that the distribution does not have, as objects that
//! `millpond compare` finds and preloads.
//!
//! Each comes from a crate that carries the allocator's own sources, wrapped by a small package in
//! `preload/allocators`, which is a workspace of its own: nobody who does not ask for these objects
//! compiles C or C++ for them. An object is put in its place only after it has proved, preloaded
//! into a program, that it serves every function of malloc's family.
//!
//! They land in `allocators` in the target directory, `libmillpond-NAME.so` with its origin in
//! `libmillpond-NAME.json` beside it, where a `millpond` built into the same target directory looks.
//! Cargo rebuilds what has changed and nothing else, so running this twice costs a second.
//! Absent on purpose: downloads of anything but crates, and allocators that Debian packages.

mod recipe;
mod compiler;
mod build;
mod origin;

use std::path::PathBuf;

use build::Workshop;
use recipe::{ALL, Recipe};

/// Builds the allocator of that name, or all of them. One that fails does not keep the others from
/// being made; the sentence names all that failed.
pub(crate) fn run(only: Option<&str>) -> Result<(), String> {
    let chosen = chosen(only)?;
    let workshop = Workshop::open()?;
    let mut made: Vec<(&Recipe, PathBuf)> = Vec::new();
    let mut failures: Vec<String> = Vec::new();
    for recipe in chosen {
        println!("\n=== {}", recipe.name);
        match compiler::find(recipe.language)
            .map_err(|why| format!("{}: {why}", recipe.name))
            .and_then(|compiler| workshop.make(recipe, &compiler))
        {
            Ok(object) => made.push((recipe, object)),
            Err(sentence) => {
                println!("{sentence}");
                failures.push(sentence);
            }
        }
    }
    println!();
    for (recipe, object) in &made {
        println!("{:<10} {}", recipe.name, object.display());
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n       "))
    }
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Recipe>, String> {
    let Some(name) = only else {
        return Ok(ALL.iter().collect());
    };
    let names: Vec<&str> = ALL.iter().map(|recipe| recipe.name).collect();
    ALL.iter()
        .find(|recipe| recipe.name == name)
        .map(|recipe| vec![recipe])
        .ok_or_else(|| {
            format!(
                "no allocator called {name} is built here: use {}",
                names.join(", ")
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one, all, or a sentence that names what there is.
    #[test]
    fn names_choose_recipes() {
        assert_eq!(chosen(None).unwrap().len(), ALL.len());
        assert_eq!(chosen(Some("snmalloc")).unwrap()[0].name, "snmalloc");
        let sentence = chosen(Some("hoard")).unwrap_err();
        assert!(
            sentence.contains("hoard") && sentence.contains("rpmalloc"),
            "{sentence}"
        );
    }
}
