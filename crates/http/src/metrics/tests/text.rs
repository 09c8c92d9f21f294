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
