//! Sentences in lines that a terminal need not break.
//!
//! Every text that people read, here and in the crates above.

/// Breaks `sentence` at blanks into lines, each with its end, that are no longer than `width` as far as
/// words allow. The first keeps the blanks that the sentence begins with, the others begin with `indent`.
pub fn wrapped(sentence: &str, width: usize, indent: &str) -> String {
    let own_indent = &sentence[..sentence.len() - sentence.trim_start().len()];
    let mut text = String::new();
    let mut line = own_indent.to_owned();
    let mut is_empty = true;
    // A number and its percent sign stay together.
    let glued = sentence.trim_start().replace(" %", "\u{a0}%");
    for word in glued.split([' ', '\n']) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            text += line.trim_end();
            text.push('\n');
            line = indent.to_owned();
            is_empty = true;
        }
        // Blanks within a line stay, as in a path or a command that is quoted.
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty &= word.is_empty();
    }
    (text + line.trim_end() + "\n").replace('\u{a0}', " ")
}

/// A word as a POSIX shell takes it.
pub(crate) fn shell_quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
#[path = "tests/lines.rs"]
mod tests;
