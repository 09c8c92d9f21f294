use super::*;

/// Goal: a profile without any graph is refused before anything is started.
#[test]
fn nothing_to_draw_is_refused() {
    let launcher = Launcher {
        program: PathBuf::from("/bin/true"),
    };
    let config = ProfileConfig::new(Target::Entity { extra: Vec::new() }, launcher);
    assert!(config.check().is_ok());
    assert_eq!(config.chosen_allocators().unwrap().len(), 1);
    let changes: [fn(&mut ProfileConfig); 6] = [
        |it| (it.cpu, it.allocations) = (false, false),
        |it| it.sample_bytes = 0,
        |it| it.rounds = 0,
        |it| it.samples_per_s = 0,
        |it| it.rate_per_s = Some(f64::NAN),
        |it| it.options.environment = vec![("LD_PRELOAD".into(), "/x".into())],
    ];
    for change in changes {
        let mut config = config.clone();
        change(&mut config);
        assert!(config.check().is_err(), "{config:?}");
    }
    let mut config = config;
    config.allocators = Some(
        ["glibc", "mempool", "native=/a"]
            .map(str::to_owned)
            .to_vec(),
    );
    assert!(config.chosen_allocators().is_err());
}
