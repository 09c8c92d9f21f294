//! Numbers that pages quote, held against the records that they name.

use crate::root;

/// A page, what it says of a figure, and the figure. The first number counts, as far as it has digits.
const QUOTED: [(&str, &str, &str); 29] = [
    (
        "README.md",
        "20.6 times the requests",
        "server_depth16_requests_per_s_over_nginx_ratio",
    ),
    (
        "README.md",
        "1.73 times (the aim was 2.5;",
        "server_c500_requests_per_cpu_s_uring_over_nginx_ratio",
    ),
    (
        "README.md",
        "2.4 times",
        "server_tls_keep_alive_requests_per_cpu_s_over_nginx_ratio",
    ),
    (
        "README.md",
        "216 bytes each",
        "server_idle_uring_bytes_per_connection_by_pools",
    ),
    (
        "README.md",
        "307 of RSS",
        "server_idle_uring_bytes_per_connection_by_rss",
    ),
    (
        "README.md",
        "1.30 times (the aim was 1.4)",
        "proxy_requests_per_cpu_s_uring_over_haproxy_ratio",
    ),
    (
        "README.md",
        "and 1.46 |",
        "proxy_requests_per_cpu_s_uring_over_nginx_ratio",
    ),
    (
        "README.md",
        "1,046 to",
        "load_c64_depth1_user_instructions_per_request_by_callgrind",
    ),
    (
        "README.md",
        "to 6,030",
        "load_wrk_c64_depth1_user_instructions_per_request_by_callgrind",
    ),
    ("README.md", "5.3 and 2.9", "pools_pair_speedup_over_glibc"),
    (
        "README.md",
        "and 2.9 times",
        "pools_pair_speedup_over_best_allocator",
    ),
    (
        "README.md",
        "11.7 times",
        "pools_producer_consumer_mixed_speedup_over_glibc",
    ),
    (
        "README.md",
        "0.88 (slower)",
        "pools_producer_consumer_mixed_speedup_over_best_allocator",
    ),
    (
        "README.md",
        "0.95; 1.06",
        "redis_mempool_requests_per_s_over_best_allocator",
    ),
    (
        "README.md",
        "; 1.06",
        "redis_mempool_rss_over_smallest_allocator",
    ),
    (
        "docs/operating.md",
        "172,775 small",
        "server_c500_uring_requests_per_cpu_s",
    ),
    (
        "docs/operating.md",
        "150,983 with epoll",
        "server_c500_epoll_requests_per_cpu_s",
    ),
    (
        "docs/operating.md",
        "2,511,021 a second",
        "server_depth16_requests_per_s",
    ),
    (
        "docs/operating.md",
        "124,773 requests",
        "server_tls_keep_alive_requests_per_cpu_s_millpond",
    ),
    (
        "docs/operating.md",
        "3,419 full",
        "server_tls_full_handshakes_per_cpu_s_millpond",
    ),
    (
        "docs/operating.md",
        "4,166 resumed",
        "server_tls_resumed_handshakes_per_cpu_s_millpond",
    ),
    (
        "docs/operating.md",
        "50,366 requests",
        "proxy_uring_requests_per_cpu_s",
    ),
    (
        "docs/operating.md",
        "47,372 with epoll",
        "proxy_epoll_requests_per_cpu_s",
    ),
    (
        "docs/operating.md",
        "216 bytes in the pools",
        "server_idle_uring_bytes_per_connection_by_pools",
    ),
    (
        "docs/operating.md",
        "307 of RSS",
        "server_idle_uring_bytes_per_connection_by_rss",
    ),
    (
        "docs/operating.md",
        "177 and 212",
        "server_idle_epoll_bytes_per_connection_by_pools",
    ),
    (
        "docs/operating.md",
        "and 212;",
        "server_idle_epoll_bytes_per_connection_by_rss",
    ),
    ("docs/operating.md", "34.7 puts", "entity_puts_per_wal_sync"),
    (
        "docs/operating.md",
        "1.27 times the CPU",
        "entity_get_over_plaintext_cpu_ratio",
    ),
];

/// The first number of a phrase, and how many digits stand behind its point.
fn number(phrase: &str) -> (f64, usize) {
    let digits: String = phrase
        .chars()
        .skip_while(|it| !it.is_ascii_digit())
        .take_while(|it| it.is_ascii_digit() || *it == '.' || *it == ',')
        .filter(|it| *it != ',')
        .collect();
    let decimals = digits.split_once('.').map_or(0, |(_, behind)| behind.len());
    (digits.parse().unwrap(), decimals)
}

/// What is wrong with a phrase of a page.
fn complaint(page: &str, text: &str, phrase: &str, figure: &str) -> Option<String> {
    let Some((_, after)) = text.split_once(phrase) else {
        return Some(format!("{page} does not say `{phrase}` any more"));
    };
    if after.contains(phrase) {
        return Some(format!("{page} says `{phrase}` more than once"));
    }
    // The first link behind it, in the same paragraph or line of a table.
    let after = after.split("\n\n").next().unwrap_or_default();
    let record = after.split("](").skip(1).find_map(|link| {
        let target = link.split(')').next()?;
        target.split_once("benches/records/").map(|(_, name)| name)
    });
    let Some(record) = record else {
        return Some(format!("{page}: no record stands behind `{phrase}`"));
    };
    let record_text = std::fs::read_to_string(root().join("benches/records").join(record));
    let record_text = record_text.unwrap_or_else(|error| panic!("{record}: {error}"));
    let json: serde_json::Value = serde_json::from_str(&record_text).unwrap();
    let figures = json["figures"].as_array().unwrap();
    let found = figures.iter().find(|it| it["name"] == figure);
    let Some(value) = found.and_then(|it| it["value"].as_f64()) else {
        return Some(format!("{record} has no {figure}"));
    };
    let (quoted, decimals) = number(phrase);
    let written = format!("{value:.decimals$}");
    let is_right = written == format!("{quoted:.decimals$}");
    (!is_right).then(|| format!("{page} says `{phrase}`, and {record} that {figure} is {written}"))
}

/// Goal: what a page says was measured is what the record that it names says.
#[test]
fn quoted_figures_are_those_of_their_records() {
    let complaints: Vec<String> = QUOTED
        .iter()
        .filter_map(|(page, phrase, figure)| {
            let text = std::fs::read_to_string(root().join(page)).unwrap();
            complaint(page, &text, phrase, figure)
        })
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Goal: a wrong number, a wrong figure and a missing record are found.
#[test]
fn misquoted_figures_are_found() {
    let figure = "server_depth16_requests_per_s_over_nginx_ratio";
    let link = "[a](benches/records/2026-11-23-server.json)";
    let of = |text: &str, phrase: &str, figure: &str| {
        complaint("page", text, phrase, figure).unwrap_or_default()
    };
    let right = format!("15.5 times {link}");
    assert_eq!(of(&right, "15.5 times", figure), "");
    let wrong = format!("15.4 times {link}");
    assert!(of(&wrong, "15.4 times", figure).ends_with("is 15.5"));
    assert!(of(&right, "15.5 times", "server_speed").contains("has no server_speed"));
    assert!(of("15.5 times", "15.5 times", figure).contains("no record"));
    assert!(of(&right, "16 times", figure).contains("does not say"));
    assert!(of(&format!("{right} {right}"), "15.5 times", figure).contains("more than once"));
}
