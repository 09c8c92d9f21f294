use super::*;
use crate::config::{Target, Workload};
use std::path::PathBuf;

#[test]
fn a_script_is_refused_with_the_way_out() {
    let config = ScriptConfig {
        file: PathBuf::from("post.lua"),
        source: Vec::new().into(),
        url: "http://127.0.0.1:1/".to_owned(),
        args: Vec::new(),
        method: "GET".to_owned(),
        fields: Vec::new(),
        body: None,
        seed: None,
    };
    let target = Target {
        addresses: [Address::Unix("/nowhere".into())].into(),
        host: "nowhere".to_owned(),
        path: "/".into(),
    };
    let workload = Workload::Static {
        method: Method::Get,
        fields: vec![],
        body: vec![],
    };
    let load = LoadConfig::new(target, workload);
    let error = Script::load(&config, &load).expect_err("there is no Lua");
    let sentence = error.to_string();
    assert!(sentence.contains("post.lua"), "{sentence}");
    assert!(sentence.contains("--features lua"), "{sentence}");
}
