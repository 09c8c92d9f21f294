use super::*;

/// Goal: all combinations take part, each once, and the first is malloc as it is.
#[test]
fn every_combination_takes_part() {
    let mut config = LoopbackConfig::new(PathBuf::from("/nowhere"));
    let names = |config: &LoopbackConfig| -> Vec<String> {
        let found = candidates(config).unwrap();
        found.into_iter().map(|it| it.name).collect()
    };
    assert_eq!(names(&config), ["glibc, no pools", "glibc, pools"]);
    config.pools = vec![PoolSetting::On, PoolSetting::Off];
    config.allocators = Some(["mempool", "glibc"].map(str::to_owned).to_vec());
    assert_eq!(
        names(&config),
        [
            "glibc, no pools",
            "glibc, pools",
            "mempool, no pools",
            "mempool, pools"
        ]
    );
    config.pools = vec![PoolSetting::On];
    assert_eq!(names(&config), ["glibc, pools", "mempool, pools"]);
    config.allocators = Some(vec!["frobnicate".to_owned()]);
    assert!(candidates(&config).is_err());
}
