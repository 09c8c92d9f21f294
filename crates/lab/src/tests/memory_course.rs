use super::*;

fn series(values: &[(u64, Option<u64>)]) -> MemorySeries {
    let mut series = MemorySeries::default();
    for (index, &(rss, memory)) in values.iter().enumerate() {
        series.push(index as u64 * 10, rss, memory);
    }
    series
}

fn phases() -> Vec<CoursePhase> {
    let phase = |name: &str, from_ns, to_ns| CoursePhase {
        name: name.to_owned(),
        from_ns,
        to_ns,
    };
    vec![
        phase("warm-up", 0, 10),
        phase("put throughput", 10, 20),
        phase("get throughput", 20, 40),
        phase("idle", 40, 50),
    ]
}

fn found(edges: &EdgeMemory, series: &MemorySeries) -> [Option<f64>; 3] {
    let mut measures = RoundMeasures::default();
    edges.note(series, &phases(), &mut measures);
    [
        Quantity::PeakMemory,
        Quantity::MeanMemory,
        Quantity::PeakRss,
    ]
    .map(|quantity| measures.get(Measure::whole(quantity)))
}

/// The peak of RSS was once below a sample of the same run.
///
/// Goal: no sample is above the peak, the mean is of the work alone, and a value that is not read everywhere is left
/// out.
#[test]
fn peaks_are_above_all_samples() {
    let edges = EdgeMemory {
        peak_rss_bytes: 70,
        ..EdgeMemory::default()
    };
    let sampled = series(&[
        (20, Some(90)),
        (20, Some(2)),
        (30, Some(4)),
        (90, Some(4)),
        (30, Some(4)),
        (20, Some(1)),
    ]);
    // 3 for 10 ns, and 4 for 20.
    let mean = 110.0 / 30.0;
    assert_eq!(
        found(&edges, &sampled),
        [Some(90.0), Some(mean), Some(90.0)]
    );
    let lower = series(&[(20, Some(2)), (30, Some(2))]);
    assert_eq!(found(&edges, &lower), [Some(2.0), Some(2.0), Some(70.0)]);
    let rss_alone = series(&[(20, Some(2)), (30, None), (90, Some(1))]);
    assert_eq!(found(&edges, &rss_alone), [None, None, Some(90.0)]);
    let nothing = EdgeMemory::default();
    assert_eq!(found(&nothing, &MemorySeries::default()), [None; 3]);
}
