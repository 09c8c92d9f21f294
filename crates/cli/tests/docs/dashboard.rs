//! What `/metrics` says of itself, and the dashboard that reads it.

use crate::root;
use crate::support::{Server, curl};
use rcgen::{CertificateParams, KeyPair};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// What one `/metrics` has: the labels of each metric, with the help and the type of each family.
#[derive(Default)]
pub(crate) struct Exported {
    help: BTreeMap<String, String>,
    kind: BTreeMap<String, String>,
    labels: BTreeMap<String, BTreeSet<String>>,
}

impl Exported {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().map(String::as_str)
    }

    /// Its type and labels, as the reference writes them.
    pub(crate) fn facts(&self, name: &str) -> Option<(&str, &BTreeSet<String>)> {
        Some((self.kind.get(name)?, self.labels.get(name)?))
    }

    fn read(&mut self, text: &str) {
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
                let labels = self.labels.entry(name.to_owned()).or_default();
                labels.extend(labels_in(line));
            }
        }
    }
}

/// What stands before each `="` or `=~"`.
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
    // Nobody listens there: failures have metrics of their own.
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

/// `/metrics`, once it tells of an answer: a shard publishes what it counted about once a second.
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
        let is_counter = name.ends_with("_total");
        assert_eq!(kind, if is_counter { "counter" } else { "gauge" }, "{name}");
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
    ] {
        let complaint = complaint(planted, exported).unwrap_or_default();
        assert!(complaint.contains(word), "{planted}: `{complaint}`");
    }
}

/// What is wrong with a query.
fn complaint(query: &str, exported: &Exported) -> Option<String> {
    let mut asked = labels_asked(query);
    // Scrapers add these two.
    asked.retain(|label| label != "instance" && label != "job");
    for name in metrics_in(query) {
        let Some(labels) = exported.labels.get(&name) else {
            return Some(format!("nobody exports {name}"));
        };
        if let Some(label) = asked.difference(labels).next() {
            return Some(format!("{name} has no label {label}"));
        }
        let is_rate = query.contains(&format!("rate({name}"));
        if is_rate != name.ends_with("_total") {
            return Some(format!(
                "{name}: rate is for counters, and counters are for rate"
            ));
        }
    }
    None
}
