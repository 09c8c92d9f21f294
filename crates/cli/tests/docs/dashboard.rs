//! `/metrics` and its metadata, and the dashboard that reads it.

use crate::root;
use crate::support::{Server, curl};
use rcgen::{CertificateParams, KeyPair};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// The contents of one `/metrics`: the labels of each metric, with the help and the type of each family.
#[derive(Default)]
pub(crate) struct Exported {
    help: BTreeMap<String, String>,
    kind: BTreeMap<String, String>,
    labels: BTreeMap<String, BTreeSet<String>>,
    /// The data read, one server after the other.
    texts: Vec<String>,
}

impl Exported {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().map(String::as_str)
    }

    /// Its type and labels, as the reference writes them.
    pub(crate) fn facts(&self, name: &str) -> Option<(&str, &BTreeSet<String>)> {
        Some((self.kind.get(name)?, self.labels.get(name)?))
    }

    /// The histogram that a series belongs to; of any other series its own name.
    pub(crate) fn family<'n>(&self, name: &'n str) -> &'n str {
        let ends = ["_bucket", "_sum", "_count"];
        let family = ends.iter().find_map(|end| name.strip_suffix(end));
        let is_histogram = |name: &&str| self.kind.get(*name).is_some_and(|it| it == "histogram");
        family.filter(is_histogram).unwrap_or(name)
    }

    fn read(&mut self, text: &str) {
        self.texts.push(text.to_owned());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
                self.help.insert(name.to_owned(), help.to_owned());
            } else if let Some((name, kind)) = line
                .strip_prefix("# TYPE ")
                .and_then(|rest| rest.split_once(' '))
            {
                self.kind.insert(name.to_owned(), kind.to_owned());
            } else {
                let name = line.split(['{', ' ']).next().unwrap_or_default();
                let family = self.family(name);
                let is_histogram = family != name;
                let labels = labels_in(line).filter(|label| !is_histogram || label != "le");
                let labels: Vec<String> = labels.collect();
                self.labels
                    .entry(family.to_owned())
                    .or_default()
                    .extend(labels);
            }
        }
    }
}

/// The text before each `="` or `=~"`.
fn labels_in(text: &str) -> impl Iterator<Item = String> + '_ {
    text.match_indices("=\"")
        .chain(text.match_indices("=~\""))
        .map(|(end, _)| {
            let before = &text[..end];
            let start = before.rfind(|it: char| !it.is_ascii_lowercase() && it != '_');
            before[start.map_or(0, |start| start + 1)..].to_owned()
        })
}

/// All that the servers and the proxy export, each after it has done something, with all that has metrics of
/// its own switched on.
pub(crate) fn exported() -> &'static Exported {
    static EXPORTED: OnceLock<Exported> = OnceLock::new();
    EXPORTED.get_or_init(export)
}

fn export() -> Exported {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    make_certificate(directory.path());
    let log = path("access.log");
    let entity = Server::start(&["entity", "--data", &path("data"), "--access-log", &log]);
    let proxy = Server::start_proxy(&["--upstream", &entity.address, "--mirror", "127.0.0.1:1"]);
    let (certificate, key) = (path("tls.crt"), path("tls.key"));
    let files = ["files", &path("."), "--tls-cert", &certificate];
    let files = Server::start(&[&files[..], &["--tls-key", &key]].concat());
    let told = Server::start(&["plaintext", "--proxy-protocol"]);
    let id = proxy.url("/v0/entity?id=a");
    assert_eq!(curl(&["-X", "PUT", "--data", "value", &id]).0, 201);
    assert_eq!(curl(&[&id]).0, 200);
    // Nothing listens there: failures have metrics of their own.
    let failing = Server::start_proxy(&["--upstream", "127.0.0.1:1"]);
    assert_eq!(curl(&[&failing.url("/")]).0, 502);
    // So does what goes nowhere.
    let options = (0..17)
        .map(|index| format!("x-{index}"))
        .collect::<Vec<_>>();
    let connection = format!("Connection: {}", options.join(", "));
    assert_eq!(curl(&["-H", &connection, &failing.url("/")]).0, 400);
    let mut exported = Exported::default();
    exported.read(&scrape(&[&entity.url("/metrics")]));
    let words = proxy.metrics_words();
    exported.read(&scrape(
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    let words = failing.metrics_words();
    exported.read(&scrape(
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    let secret = format!("https://{}/metrics", files.address);
    exported.read(&scrape(&["--insecure", &secret]));
    exported.read(&scrape(&["--haproxy-protocol", &told.url("/metrics")]));
    exported
}

fn make_certificate(directory: &Path) {
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
    std::fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
}

/// `/metrics`, once it counts a response: a shard publishes its counts about once a second.
fn scrape(words: &[&str]) -> String {
    let begun = std::time::Instant::now();
    loop {
        let (status, text) = curl(words);
        assert_eq!(status, 200);
        let text = String::from_utf8(text).unwrap();
        if text.contains("\nmillpond_http_responses_total{") {
            return text;
        }
        assert!(begun.elapsed().as_secs() < 60, "{text}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Names of metrics in a query.
fn metrics_in(query: &str) -> BTreeSet<String> {
    let words = query.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words
        .filter(|word| word.starts_with("millpond_"))
        .map(str::to_owned)
        .collect()
}

/// Labels that a query picks by, or adds up by.
fn labels_asked(query: &str) -> BTreeSet<String> {
    let mut labels: BTreeSet<String> = labels_in(query).collect();
    for (start, found) in query.match_indices(" by (") {
        let list = query[start + found.len()..]
            .split(')')
            .next()
            .unwrap_or_default();
        labels.extend(list.split(", ").map(str::to_owned));
    }
    labels
}

/// Goal: every metric of every server says what it is; every query of the dashboard names metrics that
/// there are, with labels that they have; and counters are what rates are taken of.
#[test]
fn metrics_explain_themselves_and_the_dashboard_reads_them() {
    let exported = exported();
    assert!(exported.labels.len() > 60, "{:?}", exported.labels.keys());
    for name in exported.labels.keys() {
        let help = exported.help.get(name).map_or("", String::as_str);
        assert!(
            help.len() > 10 || name.ends_with("_reserved_bytes"),
            "{name}: `{help}`"
        );
        let kind = exported.kind.get(name).map_or("", String::as_str);
        let kinds: &[&str] = match name.ends_with("_total") {
            true => &["counter"],
            false => &["gauge", "histogram"],
        };
        assert!(kinds.contains(&kind), "{name} is a {kind}");
    }
    let text = std::fs::read_to_string(root().join("docs/grafana.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            queries += 1;
            assert_eq!(
                complaint(query, exported),
                None,
                "{} in {query}",
                panel["title"]
            );
        }
    }
    assert!(queries > 40, "{queries}");
    for (planted, word) in [
        (
            "sum(rate(millpond_http_request_total[1m]))",
            "millpond_http_request_total",
        ),
        ("sum by (colour) (millpond_http_connections)", "colour"),
        ("millpond_http_limit{kind=\"a\"}", "kind"),
        ("rate(millpond_http_connections[1m])", "rate"),
        ("millpond_http_request_duration_seconds_bucket", "rate"),
        ("sum by (le) (millpond_http_connections)", "no label le"),
    ] {
        let complaint = complaint(planted, exported).unwrap_or_default();
        assert!(complaint.contains(word), "{planted}: `{complaint}`");
    }
}

/// The mistake in a query.
fn complaint(query: &str, exported: &Exported) -> Option<String> {
    let mut asked = labels_asked(query);
    // Scrapers add these two.
    asked.retain(|label| label != "instance" && label != "job");
    for name in metrics_in(query) {
        let family = exported.family(&name);
        let Some(labels) = exported.labels.get(family) else {
            return Some(format!("nobody exports {name}"));
        };
        let is_bucket = family != name && name.ends_with("_bucket");
        let mut unknown = asked.difference(labels);
        if let Some(label) = unknown.find(|&label| !is_bucket || label != "le") {
            return Some(format!("{name} has no label {label}"));
        }
        let is_rate = query.contains(&format!("rate({name}"));
        if is_rate != (name.ends_with("_total") || family != name) {
            return Some(format!(
                "{name}: rate is for counters, and counters are for rate"
            ));
        }
    }
    None
}

/// The objections of `promtool check metrics` to one exposition: the rules of its linter, promlint, for the types there
/// are.
fn objections(text: &str) -> Vec<String> {
    const ABBREVIATIONS: [&str; 14] = [
        "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d",
    ];
    const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];
    const RESERVED: [&str; 3] = ["_bucket", "_count", "_sum"];
    let mut one = Exported::default();
    one.read(text);
    let mut found = Vec::new();
    // A family may be described and have no sample yet.
    let names: BTreeSet<&String> = one.labels.keys().chain(one.kind.keys()).collect();
    for name in names {
        let mut object = |is_wrong: bool, rule: &str| {
            if is_wrong {
                found.push(format!("{name}: {rule}"));
            }
        };
        let kind = one.kind.get(name).map_or("", String::as_str);
        let has_part = |parts: &[&str]| name.split('_').skip(1).any(|part| parts.contains(&part));
        let is_valid = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
        object(one.help.get(name).is_none_or(String::is_empty), "no help");
        object(
            !["counter", "gauge", "histogram"].contains(&kind),
            "no type",
        );
        object(
            (kind == "counter") != name.ends_with("_total"),
            "counters end in _total, and only they do",
        );
        object(has_part(&ABBREVIATIONS), "abbreviated unit");
        object(name.split('_').any(is_derived_unit), "not a base unit");
        object(has_part(&TYPES), "type in its name");
        object(
            RESERVED.iter().any(|end| name.ends_with(end)),
            "a suffix of histograms",
        );
        object(!name.bytes().all(is_valid), "not in snake_case");
        let is_reserved = |label: &String| label == "le" || label == "quantile";
        object(
            one.labels
                .get(name)
                .is_some_and(|it| it.iter().any(is_reserved)),
            "a label of histograms",
        );
    }
    found
}

/// Whether a part of a name is a unit that Prometheus wants converted: to seconds, bytes, meters and so on.
fn is_derived_unit(part: &str) -> bool {
    const BASE: [&str; 8] = [
        "amperes", "bytes", "celsius", "grams", "joules", "meters", "seconds", "volts",
    ];
    const OTHER: [&str; 6] = ["minutes", "hours", "days", "weeks", "bits", "fahrenheit"];
    const PREFIXES: [&str; 18] = [
        "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega",
        "mebi", "giga", "gibi", "tera", "tebi", "peta", "pebi",
    ];
    let is_unit = |word: &str| BASE.contains(&word) || OTHER.contains(&word);
    let mut rests = PREFIXES
        .iter()
        .filter_map(|prefix| part.strip_prefix(prefix));
    OTHER.contains(&part) || rests.any(is_unit)
}

/// Goal: promtool finds nothing wrong with a server's metrics, for every server.
#[test]
fn promtool_would_not_object() {
    let texts = &exported().texts;
    assert_eq!(texts.len(), 5);
    for text in texts {
        assert_eq!(objections(text), Vec::<String>::new());
    }
}

/// Goal: each rule finds what breaks it, in a text that breaks no other.
#[test]
fn what_promtool_would_object_to_is_found() {
    let family = |name: &str, kind: &str, labels: &str| {
        format!("# HELP {name} Things.\n# TYPE {name} {kind}\n{name}{labels} 1\n")
    };
    assert!(objections(&family("a_seconds_total", "counter", "")).is_empty());
    for (text, rule) in [
        (family("a_ns_total", "counter", ""), "abbreviated unit"),
        (family("a_per_s_max", "gauge", ""), "abbreviated unit"),
        (family("a_bytes", "counter", ""), "counters end in _total"),
        (family("a_total", "gauge", ""), "counters end in _total"),
        (family("a_milliseconds", "gauge", ""), "not a base unit"),
        (family("a_gauge_bytes", "gauge", ""), "type in its name"),
        (family("a_count", "gauge", ""), "a suffix of histograms"),
        (family("a_bytesFree", "gauge", ""), "not in snake_case"),
        (family("a", "gauge", "{le=\"1\"}"), "a label of histograms"),
        ("# TYPE a gauge\na 1\n".to_owned(), "no help"),
        ("# HELP a Things.\na 1\n".to_owned(), "no type"),
    ] {
        let found = objections(&text);
        assert!(found.len() == 1 && found[0].contains(rule), "{found:?}");
    }
}
