//! How the upstreams are, as pages beside `/metrics`: JSON for programs, a table for people.
//!
//! Both are made from the cells of all shards, up to a second old; shards are not asked.

use super::config::ProxyControl;
use super::counters::Cell;
use crate::head_text::FieldValue;
use crate::log::write_json_text;
use crate::serve::StatusPage;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

/// What the pages say of one upstream.
struct State {
    name: String,
    shards: u64,
    usable: u64,
    down: u64,
    ejected: u64,
    unresolved: u64,
    outstanding: u64,
    parked: u64,
    in_use: u64,
    waiting: u64,
    tries: u64,
    failures: u64,
}

/// A column's name, and its number of an upstream.
type Column = (&'static str, fn(&State) -> u64);

/// The columns that both pages have.
const NUMBERS: [Column; 11] = [
    ("shards", |it| it.shards),
    ("usable_shards", |it| it.usable),
    ("down_shards", |it| it.down),
    ("ejected_shards", |it| it.ejected),
    ("unresolved_shards", |it| it.unresolved),
    ("outstanding", |it| it.outstanding),
    ("connections_parked", |it| it.parked),
    ("connections_in_use", |it| it.in_use),
    ("waiting", |it| it.waiting),
    ("tries", |it| it.tries),
    ("failures", |it| it.failures),
];

/// Failures that are the upstream's fault.
const FAILURES: [Cell; 4] = [
    Cell::FailedConnect,
    Cell::FailedTimeout,
    Cell::FailedBroken,
    Cell::FailedAnswer,
];

impl State {
    fn new(name: &str, sum: &dyn Fn(Cell) -> u64) -> Self {
        Self {
            name: name.to_owned(),
            shards: sum(Cell::IsConfigured),
            usable: sum(Cell::IsUsable),
            down: sum(Cell::IsDown),
            ejected: sum(Cell::IsEjected),
            unresolved: sum(Cell::IsUnresolved),
            outstanding: sum(Cell::Outstanding),
            parked: sum(Cell::Parked),
            in_use: sum(Cell::InUse),
            waiting: sum(Cell::Waiting),
            tries: sum(Cell::Tries),
            failures: FAILURES.into_iter().map(sum).sum(),
        }
    }

    /// Of all shards together: what is so for each, or that they differ.
    fn word(&self) -> &'static str {
        let is_all = |count: u64| count == self.shards;
        match () {
            // Health checks fail for it too, and it says why.
            () if is_all(self.unresolved) => "unresolved",
            () if is_all(self.down) => "down",
            () if is_all(self.ejected) => "ejected",
            () if is_all(self.usable) && self.unresolved == 0 => "up",
            () => "differs",
        }
    }
}

fn states(control: &ProxyControl) -> Vec<State> {
    let mut states = Vec::new();
    control.registry.visit(|name, sum| {
        // One that has left the configuration is in no shard.
        if sum(Cell::IsConfigured) > 0 {
            states.push(State::new(name, sum));
        }
    });
    states
}

fn json(states: &[State]) -> Vec<u8> {
    let mut text = b"{\"upstreams\":[".to_vec();
    for (index, state) in states.iter().enumerate() {
        let start: &[u8] = if index == 0 { b"" } else { b"," };
        text.extend_from_slice(start);
        text.extend_from_slice(b"{\"upstream\":");
        write_json_text(&mut text, &state.name);
        // Writing to a Vec cannot fail.
        let _ = write!(text, ",\"state\":\"{}\"", state.word());
        for (name, number) in NUMBERS {
            let _ = write!(text, ",\"{name}\":{}", number(state));
        }
        text.push(b'}');
    }
    text.extend_from_slice(b"]}\n");
    text
}

fn table(states: &[State]) -> String {
    let mut text = format!("{:<40} {:<10}", "upstream", "state");
    for (name, _) in NUMBERS {
        let _ = write!(text, " {name}");
    }
    for state in states {
        let _ = write!(
            text,
            "\n{:<40} {:<10}",
            state.name.escape_default().to_string(),
            state.word()
        );
        for (name, number) in NUMBERS {
            let _ = write!(text, " {:>width$}", number(state), width = name.len());
        }
    }
    text.push('\n');
    text
}

impl ProxyControl {
    /// `/upstreams` and `/upstreams.json`, for [`crate::ServeConfig::status_pages`].
    #[must_use]
    pub fn status_pages(self: &Arc<Self>) -> Vec<StatusPage> {
        let (for_json, for_table) = (Arc::clone(self), Arc::clone(self));
        vec![
            StatusPage::new("/upstreams.json", FieldValue::JSON, move || {
                json(&states(&for_json))
            }),
            StatusPage::new("/upstreams", FieldValue::TEXT_PLAIN, move || {
                table(&states(&for_table)).into_bytes()
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, counts: [u64; 5]) -> State {
        State::new(name, &|cell| match cell {
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
}
