//! nginx: a master process, two workers, files and a reload under load.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::process::Signal;

use crate::harness::{
    Running, children, demand_bound, demand_mapped, eventually, find_program, free_port, preloaded,
    run,
};

const FILE_BYTES: usize = 300_000;

fn configuration(directory: &Path, port: u16) -> String {
    let at = directory.display();
    format!(
        "daemon off; worker_processes 2; pid {at}/pid; error_log {at}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n\
         access_log {at}/access.log; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         gzip on; gzip_types text/plain; gzip_min_length 100; default_type text/plain;\n\
         server {{ listen 127.0.0.1:{port}; root {at}/www;\n\
         location /word {{ return 200 'word'; }} }}\n\
         }}\n"
    )
}

fn fetch(curl: &Path, url: &str, extra: &[&str]) -> Vec<u8> {
    let output = Command::new(curl)
        .args(["--silent", "--show-error", "--fail", "--max-time", "300"])
        .args(extra)
        .arg(url)
        .output()
        .expect("curl starts");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{url}: {why}");
    output.stdout
}

/// Starts a master on a free port, and waits for its two workers.
fn start(nginx: &Path, at: &Path) -> (Running, u16) {
    loop {
        let port = free_port();
        fs::write(at.join("nginx.conf"), configuration(at, port)).expect("the directory is ours");
        if let Some(server) = start_on(nginx, at) {
            return (server, port);
        }
    }
}

/// None: another program was faster to listen on its port.
fn start_on(nginx: &Path, at: &Path) -> Option<Running> {
    // A master started by root would run its workers as another user, which may not read the
    // directory.
    let user = if rustix::process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let child = preloaded(nginx)
        .arg("-p")
        .arg(at)
        .arg("-c")
        .arg(at.join("nginx.conf"))
        .args(["-g", user])
        .spawn()
        .expect("nginx starts");
    let mut server = Running(child);
    let mut has_ended = false;
    // They are started by a master that listens.
    eventually("nginx has two workers", || {
        has_ended = server
            .0
            .try_wait()
            .expect("wait for our own child")
            .is_some();
        has_ended || children(server.0.id()).len() == 2
    });
    if !has_ended {
        return Some(server);
    }
    let errors = fs::read_to_string(at.join("error.log")).unwrap_or_default();
    assert!(errors.contains("Address already in use"), "{errors}");
    fs::remove_file(at.join("error.log")).expect("it was just read");
    None
}

/// Goal: two workers serve whole files, plain and compressed, while a generator drives them and the
/// master replaces them; every one of them has the object.
#[test]
fn nginx_serves_and_reloads() {
    let (Some(nginx), Some(curl), Some(wrk)) = (
        find_program("nginx"),
        find_program("curl"),
        find_program("wrk"),
    ) else {
        return;
    };
    demand_bound(&nginx, &["-v"]);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::create_dir(at.join("www")).unwrap();
    let content: Vec<u8> = (0..FILE_BYTES).map(|i| b'a' + (i % 23) as u8).collect();
    fs::write(at.join("www/file.txt"), &content).unwrap();
    let (server, port) = start(&nginx, at);
    let master = server.0.id();
    let first_workers = children(master);
    for &pid in first_workers.iter().chain([&master]) {
        demand_mapped(pid);
    }
    let url = format!("http://127.0.0.1:{port}/file.txt");
    let load = thread::spawn({
        let url = url.clone();
        move || run(Command::new(wrk).args(["-t1", "-c16", "-d3s", &url])).expect_ok()
    });
    for round in 0..20 {
        assert_eq!(fetch(&curl, &url, &[]), content);
        assert_eq!(fetch(&curl, &url, &["--compressed"]), content);
        let word = format!("http://127.0.0.1:{port}/word");
        assert_eq!(fetch(&curl, &word, &[]), b"word");
        if round == 10 {
            server.signal(Signal::HUP);
        }
    }
    let report = load.join().expect("wrk ends");
    assert!(
        report.contains("requests in") && !report.contains("Non-2xx"),
        "{report}"
    );
    eventually("the workers are new ones", || {
        let workers = children(master);
        workers.len() == 2 && workers.iter().all(|pid| !first_workers.contains(pid))
    });
    children(master).into_iter().for_each(demand_mapped);
    assert_eq!(fetch(&curl, &url, &[]), content);
    let errors = fs::read_to_string(at.join("error.log")).unwrap_or_default();
    assert!(!errors.contains("exited on signal"), "{errors}");
    server.signal(Signal::QUIT);
    server.expect_end();
}
