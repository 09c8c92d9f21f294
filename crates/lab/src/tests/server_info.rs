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
