//! Requests of all kinds towards nginx: a method with a body, several URLs, a script, IPv6, a unix socket, TLS. nginx
//! responds 4xx or 5xx to any other request, so that a comparison that sends something else fails.

use std::net::SocketAddr;
use std::path::Path;

use millpond_http::Method;
use millpond_io::Address;
use millpond_io::tls::{TlsClient, TlsClientOptions, Trust};
use millpond_lab::{CompareConfig, LabError, ServerRequests, Target};
use millpond_load::{
    RequestBody, RequestClass, RequestMix, ScriptConfig, StatusSet, Validation, Workload,
};
use millpond_measure::record::{Coexistence, ComparisonRecord, SentRequests};
use rcgen::{CertificateParams, KeyPair};

use crate::common::{free_address, short_comparison};

/// The response of nginx; `$request_body` has a value only where the body is read, so the length stands for it.
const LOCATIONS: &str = "location = /get { if ($request_method != GET) { return 405; } return 200 'got'; }\n\
    location = /post {\n\
    if ($request_method != POST) { return 405; }\n\
    if ($http_x_key != yes) { return 403; }\n\
    if ($content_length != 4) { return 400; }\n\
    return 201 'made'; }\n\
    location = /gone { return 410; }\n";

/// nginx with one worker, which listens where `listen` says; both have `{port}` in them, so the configuration is
/// written when it starts.
fn nginx(directory: &Path, listen: &str) -> Vec<String> {
    let text = format!(
        "worker_processes 1; pid {0}/pid-PORT; error_log {0}/error.log; daemon off;\n\
         events {{ }}\n\
         http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p;\n\
         fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
         server {{ {listen} {LOCATIONS} }} }}\n",
        directory.display()
    );
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).expect("write");
    let file = file.display();
    let script = format!("sed s/PORT/$1/g {file} > {file}-$1; exec nginx -c {file}-$1");
    ["/bin/sh", "-c", &script, "nginx", "{port}"]
        .map(str::to_owned)
        .to_vec()
}

/// A comparison of nginx, which gets its port from the lab, under `requests`.
fn config(directory: &Path, listen: &str, requests: ServerRequests) -> CompareConfig {
    let words = nginx(directory, listen);
    let allocators = ["glibc", "mempool"].map(str::to_owned).to_vec();
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut config = short_comparison(directory, &words, address, allocators);
    let words = words.into_iter().map(Into::into).collect();
    config.target = Target::Command {
        words,
        requests: Box::new(requests),
    };
    config.emulated_counts = Some(0);
    config
}

fn run(config: &CompareConfig) -> Result<ComparisonRecord, LabError> {
    let record = crate::coexistence::run(config)?;
    assert_eq!(
        record.settings.coexistence,
        Some(Coexistence::PortInCommand)
    );
    Ok(record)
}

fn sent(record: &ComparisonRecord) -> &SentRequests {
    record.subject.requests.as_ref().expect("what was sent")
}

fn get(path: &str) -> ServerRequests {
    ServerRequests::get(free_address(), path)
}

/// GET and POST, one in four a POST.
fn two_requests(header: &str) -> ServerRequests {
    let mut requests = get("/get");
    let get = RequestClass {
        weight: 3,
        ..RequestClass::get("get", "/get")
    };
    let post = RequestClass {
        method: Method::Post,
        fields: vec![("X-Key".to_owned(), header.to_owned())],
        body: RequestBody::Template(b"four".to_vec()),
        ..RequestClass::get("post", "/post")
    };
    requests.plan.workload = Workload::Mix(RequestMix::of(vec![get, post]));
    requests.plan.validation = Validation::for_workload(&requests.plan.workload);
    requests
}

/// Goal: methods, fields, bodies and weights reach the server as they are described, and the record says which they
/// were; what the server refuses is a failure with its status.
#[test]
fn several_requests_with_bodies_are_sent() {
    let directory = tempfile::tempdir().unwrap();
    let listen = "listen 127.0.0.1:PORT;";
    let record = run(&config(directory.path(), listen, two_requests("yes"))).unwrap();
    assert_eq!(
        sent(&record).to_string(),
        "GET /get (weight 3), POST /post with a body of 4 bytes (weight 1)"
    );
    let told = run(&config(directory.path(), listen, two_requests("no")));
    let told = told.unwrap_err().to_string();
    assert!(told.contains("status 403"), "{told}");
}

fn script(code: &str) -> ServerRequests {
    let mut requests = get("/get");
    requests.plan.script = Some(ScriptConfig {
        file: "paths.lua".into(),
        source: code.as_bytes().into(),
        url: "http://127.0.0.1:1/get".to_owned(),
        args: vec!["/post".to_owned()],
        method: "GET".to_owned(),
        fields: Vec::new(),
        body: None,
        seed: None,
    });
    requests
}

/// Goal: a script's requests are sent, at the port that the lab has given the server, and its responses judged; a script
/// that fails is named before a server is started, or when it does.
#[test]
fn scripts_make_requests() {
    let directory = tempfile::tempdir().unwrap();
    let listen = "listen 127.0.0.1:PORT;";
    let paths = "local count, other = 0, nil
        function init(args) other = args[1] end
        function request()
            count = count + 1
            if count % 2 == 0 then return wrk.format() end
            return wrk.format('POST', other, {['X-Key'] = 'yes'}, 'four')
        end";
    let config = |code: &str| config(directory.path(), listen, script(code));
    let record = run(&config(paths)).unwrap();
    let named = sent(&record).script.clone().unwrap();
    assert_eq!(
        (named.file.as_str(), &named.args[..]),
        ("paths.lua", &["/post".to_owned()][..])
    );
    assert_eq!(named.sha256.len(), 64);
    let told = |code: &str| run(&config(code)).unwrap_err().to_string();
    let wrong = told("function request() return wrk.format('POST', '/get') end");
    assert!(wrong.contains("status 405"), "{wrong}");
    let broken = told("function request() return nothing.at_all end");
    assert!(
        broken.contains("paths.lua") && broken.contains("nothing"),
        "{broken}"
    );
    let late = told(
        "local count = 0
         function request()
            count = count + 1
            if count > 20 then error('too many') end
            return wrk.format()
         end",
    );
    assert!(
        late.contains("paths.lua failed") && late.contains("too many"),
        "{late}"
    );
}

/// Goal: of all addresses of a name those are used that the server listens at, found out when it runs.
#[test]
fn the_other_family_is_tried() {
    let directory = tempfile::tempdir().unwrap();
    let addresses = ["127.0.0.1:1", "[::1]:1"].map(|text| text.parse::<Address>().unwrap());
    for listen in ["listen [::1]:PORT;", "listen 127.0.0.1:PORT;"] {
        let mut requests = get("/get");
        requests.plan.target.addresses = addresses.clone().into();
        run(&config(directory.path(), listen, requests)).unwrap();
    }
}

/// Goal: candidates live together on unix sockets, each at a path of its own.
#[test]
fn unix_sockets_are_driven() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket-{port}");
    let mut requests = get("/get");
    requests.plan.target.addresses = [Address::Unix(path.clone())].into();
    let listen = format!("listen unix:{}/socket-PORT;", directory.path().display());
    let record = run(&config(directory.path(), &listen, requests)).unwrap();
    assert_eq!(sent(&record).unix, Some(path.display().to_string()));
}

/// A certificate for `localhost` with its key, and nginx's words for it.
fn certificate(directory: &Path) -> String {
    let key = KeyPair::generate().expect("key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("name");
    let certificate = params.self_signed(&key).expect("certificate");
    std::fs::write(directory.join("crt"), certificate.pem()).expect("write");
    std::fs::write(directory.join("key"), key.serialize_pem()).expect("write");
    let directory = directory.display();
    format!(
        "listen 127.0.0.1:PORT ssl; ssl_certificate {directory}/crt; ssl_certificate_key {directory}/key;"
    )
}

fn tls(trust: Trust, host: &str) -> ServerRequests {
    let mut requests = get("/get");
    let options = TlsClientOptions {
        host: host.to_owned(),
        trust,
        identity: None,
        protocols: Vec::new(),
        handshake_timeout_ns: 10_000_000_000,
        handshake_bytes_max: 1 << 18,
    };
    requests.plan.tls = Some(TlsClient::load(options).expect("authority"));
    requests.plan.is_verified = true;
    requests
}

/// Goal: a server that speaks TLS is awaited and driven over TLS, its version is in the record, and a certificate for
/// another name ends it with what to check.
#[test]
fn tls_is_spoken() {
    let directory = tempfile::tempdir().unwrap();
    let listen = certificate(directory.path());
    let authority = Trust::File(directory.path().join("crt"));
    let requests = tls(authority.clone(), "localhost");
    let record = run(&config(directory.path(), &listen, requests)).unwrap();
    let version = sent(&record).tls.clone().unwrap().version.unwrap();
    assert!(version.starts_with("TLS 1."), "{version}");
    let requests = tls(authority, "elsewhere.test");
    let told = run(&config(directory.path(), &listen, requests))
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("no TLS handshake") && told.contains("--sni"),
        "{told}"
    );
}

/// Goal: the user defines the right response: a status that is usually wrong may be the right one.
#[test]
fn expected_statuses_are_right() {
    let directory = tempfile::tempdir().unwrap();
    let listen = "listen 127.0.0.1:PORT;";
    let mut requests = get("/gone");
    let told = run(&config(directory.path(), listen, requests.clone())).unwrap_err();
    assert!(told.to_string().contains("status 410"), "{told}");
    requests.plan.validation.statuses = StatusSet::of(&[410]);
    run(&config(directory.path(), listen, requests)).unwrap();
}
