//! Whether a server may open as many files as its connections take.
//!
//! Absent on purpose: raising the limit. Who set it may have meant it, and what is started from here
//! would inherit it.

use crate::output;
use millpond_http::ServeConfig;
use millpond_lab::doctor::{Limit, Machine, OTHER_FILES};

/// Says so if the connections that a server is to take are more than it can have.
pub(super) fn warn_if_few(config: &ServeConfig) {
    let shares = config.limits.connections_max.saturating_mul(config.shards);
    let connections = u64::try_from(shares).unwrap_or(u64::MAX);
    // A proxy has a connection to an upstream beside each of its clients'.
    let each = if config.name == "proxy" { 2 } else { 1 };
    let limit = Machine::this().open_files();
    if let Some(sentence) = limit.and_then(|limit| warning(connections, each, limit)) {
        output::warn(sentence);
    }
}

/// `each`: files that a connection takes.
fn warning(connections: u64, each: u64, limit: Limit) -> Option<String> {
    let Limit { soft, hard } = limit;
    let needed = connections.saturating_mul(each).saturating_add(OTHER_FILES);
    if soft >= needed {
        return None;
    }
    let room = soft.saturating_sub(OTHER_FILES) / each.max(1);
    let who = if hard >= needed { "" } else { " as root" };
    Some(format!(
        "{soft} files may be open (ulimit -n), which is room for {room} of {connections} connections; \
         beyond that a new one takes the place of the one idle for longest, or waits. \
         `ulimit -n {needed}`{who} before it starts makes room, or LimitNOFILE={needed} in a systemd \
         unit; or give a smaller --max-connections"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who has too few descriptors learns how many connections that makes, and the number that
    /// is enough; who has enough hears nothing.
    #[test]
    fn too_few_descriptors_are_told_with_the_number() {
        let limit = |soft, hard| Limit { soft, hard };
        assert_eq!(warning(1000, 1, limit(1116, 1116)), None);
        assert_eq!(warning(u64::MAX, 2, limit(u64::MAX, u64::MAX)), None);
        let told = warning(16_384, 1, limit(1024, 524_288)).unwrap();
        for part in [
            "1024 files",
            "room for 908 of 16384",
            "`ulimit -n 16500` before",
        ] {
            assert!(told.contains(part), "{told}");
        }
        let told = warning(16_384, 2, limit(100, 4096)).unwrap();
        for part in [
            "room for 0",
            "`ulimit -n 32884` as root",
            "LimitNOFILE=32884",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }
}
