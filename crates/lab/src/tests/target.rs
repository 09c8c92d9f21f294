use super::*;

fn requests(text: &str) -> Box<ServerRequests> {
    Box::new(ServerRequests::get(text.parse().unwrap(), "/a"))
}

fn at(address: &str) -> Endpoint {
    Endpoint::here([address.parse().unwrap()].into(), 1234)
}

fn words_of(target: &Target, endpoint: &Endpoint, pools: Option<PoolSetting>) -> Vec<OsString> {
    target.command(Path::new("/m"), endpoint, Path::new("/d"), pools, 1)
}

/// Goal: our server gets everything a run decides; the user's words are passed untouched.
#[test]
fn commands() {
    let endpoint = at("127.0.0.1:1234");
    let own = Target::Entity {
        extra: vec!["--sync".into(), "off".into()],
    };
    let words = words_of(&own, &endpoint, Some(PoolSetting::Off));
    let expected = "/m serve entity --listen 127.0.0.1:1234 --data /d --pools off --shards 1 \
                    --sync off";
    assert_eq!(
        words,
        expected.split(' ').map(OsString::from).collect::<Vec<_>>()
    );
    let other = Target::Command {
        words: vec!["nginx".into(), "-g x".into()],
        requests: requests("127.0.0.1:1234"),
    };
    assert_eq!(words_of(&other, &endpoint, None), ["nginx", "-g x"]);
    assert!(own.takes_its_port(&[]) && !other.takes_its_port(&[]));
    assert!(other.takes_its_port(&[("LISTEN".into(), ":{port}".into())]));
}

/// Goal: a server with a given port gets one of its own each time, and requests use it: in its address, in the Host
/// field and in the script's values.
#[test]
fn ports_are_filled_in() {
    let mut requests = requests("127.0.0.1:8080");
    let words = vec![
        "x".into(),
        "--listen=0.0.0.0:{port}".into(),
        "{port}{port}".into(),
    ];
    assert_eq!(requests.addresses_at(7)[0].to_string(), "127.0.0.1:7");
    assert_eq!(requests.host_at(1234), "127.0.0.1:1234");
    assert_eq!(requests.host_at(8080), "127.0.0.1:8080");
    for (host, expected) in [
        ("pond", "pond:9"),
        ("pond:80", "pond:9"),
        ("[::1]", "[::1]:9"),
        ("[::1]:80", "[::1]:9"),
    ] {
        requests.plan.target.host = host.to_owned();
        assert_eq!(requests.host_at(9), expected);
    }
    for (url, expected) in [
        ("http://pond/a:b", "http://pond:9/a:b"),
        ("http://u:p@pond:80/a", "http://u:p@pond:9/a"),
        ("https://[::1]:1?q", "https://[::1]:9?q"),
    ] {
        assert_eq!(url_with_port(url, 9), expected);
    }
    requests.is_host_of_url = false;
    assert_eq!(requests.host_at(9), "[::1]:80", "what the user says stays");
    let target = Target::Command { words, requests };
    assert!(target.takes_its_port(&[]));
    let words = words_of(&target, &at("127.0.0.1:1234"), None);
    assert_eq!(words, ["x", "--listen=0.0.0.0:1234", "12341234"]);
}

/// Goal: copies that listen on unix sockets live together only if each has a path of its own.
#[test]
fn unix_sockets_have_a_place_for_the_port_too() {
    let mut target = Target::Command {
        words: vec!["x".into(), "{port}".into()],
        requests: requests("127.0.0.1:1"),
    };
    for (path, takes) in [("unix:/run/x", false), ("unix:/run/x-{port}", true)] {
        let Target::Command { requests, .. } = &mut target else {
            unreachable!()
        };
        requests.plan.target.addresses = [path.parse().unwrap()].into();
        assert_eq!(requests.port(), None);
        assert_eq!(target.takes_its_port(&[]), takes, "{path}");
    }
    let Target::Command { requests, .. } = &target else {
        unreachable!()
    };
    assert_eq!(requests.addresses_at(7)[0].to_string(), "unix:/run/x-7");
}

/// Goal: an impossible request is refused before a server is started.
#[test]
fn requests_that_cannot_be_made_are_refused() {
    let mut requests = requests("127.0.0.1:1");
    requests.check().unwrap();
    requests.plan.script = Some(ScriptConfig {
        file: "broken.lua".into(),
        source: b"function request() error('no luck') end".to_vec().into(),
        url: "http://127.0.0.1:1/".to_owned(),
        args: Vec::new(),
        method: "GET".to_owned(),
        fields: Vec::new(),
        body: None,
        seed: None,
    });
    let told = requests.check().unwrap_err().to_string();
    assert!(told.contains("broken.lua"), "{told}");
}
