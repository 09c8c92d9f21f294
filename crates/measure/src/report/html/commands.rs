//! The commands that repeat a comparison, as a shell takes them.

use crate::record::ComparisonRecord;
use crate::report::lines::shell_quoted;

/// The comparison with the random choices that were drawn, the page again, and the check against it.
pub(super) fn to_repeat(record: &ComparisonRecord) -> Vec<String> {
    if record.command.is_empty() {
        return Vec::new();
    }
    let mut words = record.command.clone();
    let own = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    let is_seed = |word: &String| word == "--seed" || word.starts_with("--seed=");
    if !words[..own].iter().any(is_seed) {
        // Before the `--` that begins the user's command.
        words.splice(
            own..own,
            ["--seed".to_owned(), record.settings.seed.to_string()],
        );
    }
    vec![
        format!("{}   # the same order of runs", line(&words)),
        "millpond report millpond-report/results.json   # this page again".to_owned(),
        format!(
            "{}   # did it become worse since?",
            line(&with_baseline(&record.command))
        ),
    ]
}

fn with_baseline(command: &[String]) -> Vec<String> {
    let mut words = command.to_vec();
    let own = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    let flags = ["--baseline", "results.json"].map(str::to_owned);
    words.splice(own..own, flags);
    words
}

/// Words as one line for a POSIX shell.
fn line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_quoted(word)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what stands there can be pasted: words stay words, the seed comes before the user's own
    /// command, and is not given twice.
    #[test]
    fn commands_can_be_pasted() {
        let mut record = ComparisonRecord::new("1");
        assert!(to_repeat(&record).is_empty());
        let words = [
            "millpond",
            "compare",
            "--url",
            "http://h/?a=1&b",
            "--",
            "nginx",
            "-g",
            "it's off;",
        ];
        record.command = words.map(str::to_owned).to_vec();
        record.settings.seed = 9;
        let lines = to_repeat(&record);
        assert!(
            lines[0].starts_with(
                "millpond compare --url 'http://h/?a=1&b' --seed 9 -- nginx -g 'it'\\''s off;'"
            ),
            "{}",
            lines[0]
        );
        record.command = ["millpond", "compare", "--seed", "4"]
            .map(str::to_owned)
            .to_vec();
        let lines = to_repeat(&record);
        assert!(
            lines[0].starts_with("millpond compare --seed 4  "),
            "{}",
            lines[0]
        );
        assert!(lines[2].starts_with("millpond compare --seed 4 --baseline results.json"));
    }
}
