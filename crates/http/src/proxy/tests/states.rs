use super::*;

fn state(name: &str, counts: [u64; 5]) -> UpstreamTotals {
    UpstreamTotals::new(name, &|cell| match cell {
        Cell::IsConfigured => counts[0],
        Cell::IsUsable => counts[1],
        Cell::IsDown => counts[2],
        Cell::IsEjected => counts[3],
        Cell::IsUnresolved => counts[4],
        _ => 7,
    })
}

/// Goal: the word is what is so for all shards, and both pages have every upstream, whatever its name.
#[test]
fn pages_say_how_upstreams_are() {
    for (counts, word) in [
        ([2, 2, 0, 0, 0], "up"),
        ([2, 0, 2, 0, 0], "down"),
        ([2, 0, 0, 2, 0], "ejected"),
        ([2, 0, 0, 2, 2], "unresolved"),
        ([2, 0, 2, 0, 2], "unresolved"),
        ([2, 1, 0, 1, 0], "differs"),
        ([2, 2, 0, 0, 1], "differs"),
    ] {
        assert_eq!(state("a", counts).word(), word);
    }
    let states = [
        state("unix:/a\"b\n", [1, 1, 0, 0, 0]),
        state("b:1", [1, 0, 1, 0, 0]),
    ];
    let parsed: serde_json::Value = serde_json::from_slice(&json(&states)).unwrap();
    assert_eq!(parsed["upstreams"][0]["upstream"], "unix:/a\"b\n");
    assert_eq!(parsed["upstreams"][1]["state"], "down");
    assert_eq!(parsed["upstreams"][1]["failures"], 28);
    let table = table(&states);
    assert_eq!(table.lines().count(), 3, "{table}");
}
