//! What our own server says about itself on `/metrics`: its I/O driver and its storage engine.
//!
//! Every result names the engine version that ran. Somebody else's server says nothing here.

use millpond_measure::record::Engine;

use crate::probe::Probe;

/// The labels of `millpond_build_info` that a record keeps.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ServerInfo {
    pub(crate) driver: Option<String>,
    pub(crate) engine: Option<Engine>,
}

impl ServerInfo {
    /// Asks the server behind `probe`; nothing is known if it does not answer as ours does.
    pub(crate) fn ask(probe: &Probe) -> Self {
        if probe.tls.is_some() {
            // Ours is asked in clear text; of others this is not known anyway.
            return Self::default();
        }
        let metrics = Probe {
            path: "/metrics".to_owned(),
            ..probe.clone()
        };
        metrics
            .body()
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    fn parse(metrics: &str) -> Self {
        let Some(line) = metrics
            .lines()
            .find(|line| line.starts_with("millpond_build_info{"))
        else {
            return Self::default();
        };
        let label = |name: &str| label(line, name).map(str::to_owned);
        Self {
            driver: label("driver"),
            engine: label("engine").map(|name| Engine {
                name,
                version: label("engine_version").unwrap_or_default(),
                linkage: label("engine_linkage").unwrap_or_default(),
            }),
        }
    }
}

/// The value of a label; our server writes none that needs escapes.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, labels) = line.split_once('{')?;
    labels.split('}').next()?.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then(|| value.trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found() {
        let text = "# TYPE millpond_build_info gauge\n\
            millpond_build_info{version=\"0.1.0\",driver=\"epoll\",engine=\"rocksdb\",\
            engine_version=\"7.8.3\",engine_linkage=\"system\"} 1\n";
        let info = ServerInfo::parse(text);
        assert_eq!(info.driver.as_deref(), Some("epoll"));
        let engine = info.engine.unwrap();
        assert_eq!(
            (engine.name.as_str(), engine.version.as_str()),
            ("rocksdb", "7.8.3")
        );
        assert_eq!(engine.linkage, "system");
        assert_eq!(ServerInfo::parse("nginx_up 1\n"), ServerInfo::default());
    }
}
