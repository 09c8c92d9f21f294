use super::*;
use crate::metrics::MetricsText;
use millpond_mempool::{BlockPool, PoolMode};

/// Goal: every cell is shown once, and a proxy without mirrors shows none of it.
#[test]
fn every_cell_is_shown() {
    let shown: usize = METRICS.iter().map(|metric| metric.cells.len()).sum();
    assert_eq!(shown, CELLS);
    let blocks = BlockPool::new("test", PoolMode::Off);
    let registry = MirrorRegistry::default();
    let text = |registry: &MirrorRegistry| {
        let mut text = MetricsText::new(&blocks);
        registry.write(&mut text, &MIRRORS);
        String::from_utf8(text.finish().unwrap().to_vec()).unwrap()
    };
    assert_eq!(text(&registry), "");
    registry.counters("m:1", 0).add(MirrorCell::Mirrored, 3);
    let line = "millpond_mirror_requests_total{mirror=\"m:1\"} 3";
    assert!(text(&registry).lines().any(|found| found == line));
}
