use super::*;
use crate::request_mix::{RequestClass, RequestMix};

fn target() -> Target {
    Target {
        addresses: ["127.0.0.1:80".parse().unwrap()].into(),
        host: "pond".to_owned(),
        path: "/whole".to_owned(),
    }
}

fn mix() -> RequestPlan {
    let post = RequestClass {
        method: Method::Post,
        weight: 3,
        body: RequestBody::Template(b"abc".to_vec()),
        fields: vec![("X-Secret".to_owned(), "1234".to_owned())],
        ..RequestClass::get("post", "/first/{seq}?q=1")
    };
    let classes = vec![post, RequestClass::get("get", "/second")];
    RequestPlan::new(target(), Workload::Mix(RequestMix::of(classes)))
}

/// Goal: the path of the first URL is known as the server has it, with its placeholders filled in.
#[test]
fn the_first_path_is_that_of_a_request() {
    assert_eq!(RequestPlan::get(target()).first_path().unwrap(), "/whole");
    assert_eq!(mix().first_path().unwrap(), "/first/0?q=1");
    let broken = RequestMix::of(vec![RequestClass::get("x", "/{nothing}")]);
    let broken = RequestPlan::new(target(), Workload::Mix(broken));
    let told = broken.first_path().unwrap_err().to_string();
    assert!(told.contains("{nothing}"), "{told}");
}

/// Goal: a record names methods, paths, weights and the script's text by its checksum, and no secret.
#[test]
fn a_record_names_what_is_sent() {
    let mut plan = mix();
    let sent = plan.sent(None);
    assert_eq!(
        sent.to_string(),
        "POST /first/{seq}?q=1 with a body of 3 bytes (weight 3), GET /second (weight 1)"
    );
    assert_eq!(sent.requests[0].fields, ["X-Secret"]);
    assert!(!format!("{sent:?}").contains("1234"));
    plan = RequestPlan::get(target());
    plan.script = Some(ScriptConfig {
        file: "post.lua".into(),
        source: b"abc".to_vec().into(),
        url: String::new(),
        args: vec!["word".to_owned()],
        method: "GET".to_owned(),
        fields: Vec::new(),
        body: Some(b"12".to_vec()),
        seed: None,
    });
    plan.target.addresses = ["unix:/run/x".parse().unwrap()].into();
    let sent = plan.sent(Some("TLS 1.3"));
    let script = sent.script.unwrap();
    assert_eq!(script.args, ["word"]);
    assert!(
        script.sha256.starts_with("ba7816bf8f01cfea"),
        "{}",
        script.sha256
    );
    assert_eq!(sent.unix.as_deref(), Some("/run/x"));
    assert_eq!(sent.tls, None, "in plaintext");
    assert_eq!(sent.requests[0].body_bytes, Some(2));
}
