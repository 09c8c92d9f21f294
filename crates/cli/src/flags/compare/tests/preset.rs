use super::*;

/// Goal: the work is the part that was asked for, and what is started is ours, without its pools.
#[test]
fn a_preset_is_a_server_and_a_load() {
    let directory = tempfile::tempdir().unwrap();
    let words = |preset: Preset| preset.words(0.01, 20_001, directory.path()).unwrap();
    for (preset, parts) in [
        (
            Preset::Everscale,
            ["--requests 25000", "-c 500", "/answer.xml"],
        ),
        (
            Preset::Haywire,
            ["--pipeline 128", "--requests 3000000", "-R 20000"],
        ),
        (
            Preset::NetworkPool,
            [
                "-c 10000",
                "--requests 20000",
                "--requests-per-connection 1",
            ],
        ),
    ] {
        let line = words(preset).join(" ");
        for part in parts
            .into_iter()
            .chain(["serve", "--pools off", "--load-metric requests="])
        {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert!(words(Preset::Entity).is_empty());
    let answer = std::fs::metadata(directory.path().join("files/answer.xml")).unwrap();
    assert_eq!(answer.len(), EVERSCALE_ANSWER_BYTES as u64);
    let work = Preset::entity_work(1.0);
    assert_eq!((work.keys, work.memory_requests), (Some(30_000), 60_000));
    assert_eq!(work.latency_phase_ns, 15_000_000_000);
}
