use super::*;
use millpond_mempool::PoolMode;

/// Goal: a label cannot break out of its quotes, and a sample without labels has no braces.
#[test]
fn labels_are_escaped() {
    let blocks = BlockPool::new("test", PoolMode::On);
    let mut text = MetricsText::new(&blocks);
    text.describe("m_total", "counter", "Things.");
    text.sample("m_total", &[("a", &"x\"\\\n"), ("b", &7)], 1);
    text.sample("m_total", &[], 2.5);
    let expected = "# HELP m_total Things.\n# TYPE m_total counter\n\
                    m_total{a=\"x\\\"\\\\\\n\",b=\"7\"} 1\nm_total 2.5\n";
    assert_eq!(&*text.finish().unwrap(), expected.as_bytes());
}

/// Goal: times are counted in nanoseconds and shown in seconds, none of them lost; other counts are shown as they are.
#[test]
fn seconds_are_exact() {
    let blocks = BlockPool::new("test", PoolMode::On);
    let mut text = MetricsText::new(&blocks);
    for count in [0, 5, 1_234_567_890, u64::MAX] {
        text.sample_count("m_seconds_total", &[("a", &1)], count);
    }
    text.sample_count("m_total", &[], 1_234_567_890);
    let expected = "m_seconds_total{a=\"1\"} 0\n\
                    m_seconds_total{a=\"1\"} 0.000000005\n\
                    m_seconds_total{a=\"1\"} 1.23456789\n\
                    m_seconds_total{a=\"1\"} 18446744073.709551615\n\
                    m_total 1234567890\n";
    let text = text.finish().unwrap();
    assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
}
