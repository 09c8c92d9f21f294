use super::*;

/// Goal: the commands can be pasted: words stay words, the seed comes before the user's own
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
