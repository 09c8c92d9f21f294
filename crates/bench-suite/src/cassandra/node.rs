//! One node: its configuration, its Java machine, its process.
//!
//! `cassandra` starts three. The jars contain neither configuration nor script: both are here, as
//! the tests need them. A write is acknowledged when its log is on the disk
//! (`commitlog_sync: group`), which Cassandra's own default does not promise. Heaps are small and
//! the compiler is quick: three nodes start in a quarter of a minute and take a gigabyte. A node
//! belongs to the terminal it was started from, so Ctrl-C ends it too. Where the home has
//! certificates (`certificates`), nodes speak TLS, demand a certificate from their clients, and a
//! password. An empty node needs no bootstrap, and these are empty.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Node N listens on 127.0.0.N.
pub(super) const NODES: RangeInclusive<u8> = 1..=3;

/// Clients.
const PORT: u16 = 9042;
/// Other nodes.
const STORAGE_PORT: u16 = 7000;

/// The Java internals that Cassandra accesses.
const EXPORTS: [&str; 9] = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];
const OPENS: [&str; 17] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
];

/// A small machine that starts quickly. The limits of direct memory are netty's and the buffers'.
const MACHINE: [&str; 10] = [
    "-Xms64M",
    "-Xmx256M",
    "-Xss256k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxDirectMemorySize=192M",
    "-XX:ReservedCodeCacheSize=96M",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.eventLoopThreads=2",
];

/// Nodes that start together, and empty, need not wait for each other's news.
const HASTE: [&str; 6] = [
    "-Dcassandra-foreground=yes",
    "-Dcassandra.superuser_setup_delay_ms=0",
    // Of the users' names: they are known when a node is dead.
    "-Dcassandra.system_auth.default_rf=3",
    "-Dcassandra.ring_delay_ms=3000",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.consistent.rangemovement=false",
];

/// Where nodes keep what is theirs.
pub(super) struct Home {
    path: PathBuf,
    jars: PathBuf,
}

impl Home {
    pub(super) fn new(path: PathBuf, jars: &Path) -> Self {
        Self {
            path,
            jars: jars.to_owned(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the certificates are, if the nodes are to have any.
    pub(super) fn certificates(&self) -> PathBuf {
        self.path.join("tls")
    }

    fn of(&self, number: u8) -> PathBuf {
        self.path.join(format!("node{number}"))
    }

    /// No other process may have the node's address.
    pub(super) fn check_free(&self, number: u8) -> Result<(), String> {
        for port in [PORT, STORAGE_PORT] {
            let address = address(number, port);
            if TcpStream::connect(address).is_ok() {
                return Err(format!(
                    "something listens on {address} already: stop it, or wait until it is done"
                ));
            }
        }
        Ok(())
    }

    /// Starts it, with what it had before; it has its number in `pid`.
    pub(super) fn start(&self, number: u8) -> Result<(), String> {
        let home = self.of(number);
        let failed = |error: std::io::Error| format!("node {number} cannot be started: {error}");
        for directory in ["conf", "data", "logs"] {
            fs::create_dir_all(home.join(directory)).map_err(failed)?;
        }
        let mut text = settings(&home, number);
        let certificates = self.certificates();
        text.push_str(&match certificates.exists() {
            true => secured(&certificates, number),
            false => "authenticator: AllowAllAuthenticator\n".to_owned(),
        });
        fs::write(home.join("conf/cassandra.yaml"), text).map_err(failed)?;
        fs::write(home.join("conf/logback.xml"), logging(&home)).map_err(failed)?;
        let output = File::create(home.join("logs/out.log")).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let mut java = self.command(number).map_err(failed)?;
        java.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = java.spawn().map_err(failed)?;
        fs::write(home.join("pid"), child.id().to_string()).map_err(failed)
    }

    fn command(&self, number: u8) -> std::io::Result<Command> {
        let home = self.of(number);
        let shown = home.display();
        let mut java = Command::new("java");
        // glibc keeps an arena for each of hundreds of threads otherwise.
        java.env("MALLOC_ARENA_MAX", "1").current_dir(&home);
        java.args(MACHINE).args(HASTE);
        for name in EXPORTS {
            java.arg("--add-exports").arg(format!("{name}=ALL-UNNAMED"));
        }
        for name in OPENS {
            java.arg("--add-opens").arg(format!("{name}=ALL-UNNAMED"));
        }
        for entry in fs::read_dir(&self.jars)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("jamm-") {
                java.arg(format!("-javaagent:{}", path.display()));
            }
        }
        java.arg(format!(
            "-Dcassandra.config=file://{shown}/conf/cassandra.yaml"
        ));
        java.arg(format!(
            "-Dlogback.configurationFile={shown}/conf/logback.xml"
        ));
        java.arg(format!("-Dcassandra.storagedir={shown}/data"));
        java.arg(format!("-Dcassandra.logdir={shown}/logs"));
        let jmx_port = 7198 + u16::from(number);
        java.arg(format!("-Dcassandra.jmx.local.port={jmx_port}"));
        java.arg("-cp");
        java.arg(format!("{shown}/conf:{}/*", self.jars.display()));
        java.arg("org.apache.cassandra.service.CassandraDaemon");
        Ok(java)
    }

    /// Until clients can connect.
    pub(super) fn wait_for(&self, number: u8, deadline: Instant) -> Result<(), String> {
        let log = self.of(number).join("logs/out.log");
        while TcpStream::connect(address(number, PORT)).is_err() {
            if !self.is_running(number) {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(5).collect();
                return Err(format!("node {number} has ended; its last words: {last:?}"));
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "node {number} takes too long; see {}",
                    log.display()
                ));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn pid(&self, number: u8) -> Option<u32> {
        let text = fs::read_to_string(self.of(number).join("pid")).ok()?;
        text.trim().parse().ok()
    }

    /// A dead child of ours exists until it is waited for, so its state is read too.
    fn is_running(&self, number: u8) -> bool {
        let Some(pid) = self.pid(number) else {
            return false;
        };
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = state.rsplit_once(") ").map(|(_, rest)| rest);
        state.is_some_and(|state| !state.starts_with(['Z', 'X']))
    }

    /// Ends it, by its number, and waits until it has ended. Its data is of no more use.
    pub(super) fn stop(&self, number: u8) {
        let Some(pid) = self.pid(number) else {
            return;
        };
        if !self.is_running(number) {
            return;
        }
        let raw = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(raw) = raw {
            // It may have ended by itself meanwhile.
            let _ = rustix::process::kill_process(raw, rustix::process::Signal::KILL);
        }
        for _ in 0..100 {
            if !self.is_running(number) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("node {number}, process {pid}, does not end");
    }
}

fn address(number: u8, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), port))
}

fn settings(home: &Path, number: u8) -> String {
    let home = home.display();
    format!(
        "cluster_name: millpond-test
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: \"127.0.0.1\"}}]
listen_address: 127.0.0.{number}
rpc_address: 127.0.0.{number}
native_transport_port: {PORT}
storage_port: {STORAGE_PORT}
data_file_directories: [{home}/data/data]
commitlog_directory: {home}/data/commitlog
hints_directory: {home}/data/hints
saved_caches_directory: {home}/data/saved_caches
cdc_raw_directory: {home}/data/cdc
commitlog_sync: group
commitlog_sync_group_window: 2ms
commitlog_segment_size: 8MiB
commitlog_total_space: 128MiB
concurrent_reads: 4
concurrent_writes: 16
concurrent_counter_writes: 2
concurrent_materialized_view_writes: 2
concurrent_compactors: 1
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
memtable_allocation_type: offheap_buffers
file_cache_size: 32MiB
networking_cache_size: 32MiB
key_cache_size: 8MiB
counter_cache_size: 0MiB
authorizer: AllowAllAuthorizer
auto_snapshot: false
auto_bootstrap: false
hinted_handoff_enabled: true
storage_compatibility_mode: NONE
"
    )
}

/// Behind the other settings: TLS with clients that show a certificate, and have a password.
fn secured(certificates: &Path, number: u8) -> String {
    let directory = certificates.display();
    format!(
        "authenticator: PasswordAuthenticator
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: true
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: {directory}/node{number}.pem
  truststore: {directory}/ca.pem
"
    )
}

fn logging(home: &Path) -> String {
    let home = home.display();
    format!(
        "<configuration>
<appender name=\"F\" class=\"ch.qos.logback.core.FileAppender\"><file>{home}/logs/system.log</file>
<encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder></appender>
<root level=\"INFO\"><appender-ref ref=\"F\"/></root>
</configuration>
"
    )
}
