//! TLS towards upstreams: verified on both sides, and no connection without it.

use crate::pond::{LATE_NS, WATCHDOG_NS, patient};
use crate::tls_support::{Authority, NAME};
use millpond_io::connection_pool::{
    AcquireError, AcquirePhase, Acquired, ConnectionPool, Lease, Target,
};
use millpond_io::tls::{CertificateFiles, Tls, TlsClient, TlsClientOptions, Trust};
use millpond_io::{
    Driver, EpollDriver, Event, ShardContext, ShardPools, TimerWheel, UringDriver, monotonic_ns,
};
use millpond_mempool::PoolMode;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

fn options(host: &str, authority: &Path, identity: Option<CertificateFiles>) -> TlsClientOptions {
    TlsClientOptions {
        host: host.to_owned(),
        trust: Trust::File(authority.to_owned()),
        identity,
        protocols: Vec::new(),
        handshake_timeout_ns: LATE_NS,
        handshake_bytes_max: 64 << 10,
    }
}

/// A server that is not ours, for one connection; says whether its handshake succeeded, and reads until
/// the end.
fn serve_once(files: &Path, wants_certificate: bool) -> (SocketAddr, JoinHandle<bool>) {
    let certificate = || CertificateDer::from_pem_file(files.join("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(files.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if wants_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(certificate()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let config = builder.with_single_cert(vec![certificate()], key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        if tls.complete_io(&mut stream).is_err() {
            return false;
        }
        let mut end = Vec::new();
        let mut stream = rustls::Stream::new(&mut tls, &mut stream);
        // With TLS 1.3 a client certificate that is refused shows at the first read.
        stream.read_to_end(&mut end).is_ok()
    });
    (address, thread)
}

/// Result of a pool over TLS with such a server.
fn acquire<D: Driver>(driver: D, target: Target) -> Result<Lease, AcquireError> {
    let mut driver = driver;
    let mut timers = TimerWheel::new(driver.clock_ns());
    let mut pools = ShardPools::new(PoolMode::On);
    let mut pool = ConnectionPool::new(patient(), PoolMode::On, None);
    let key = pool.add_key(target).unwrap();
    let mut context = ShardContext {
        now_ns: driver.clock_ns(),
        driver: &mut driver,
        timers: &mut timers,
        pools: &mut pools,
        shard_index: 0,
    };
    let deadline_ns = context.now_ns + LATE_NS;
    let acquired = pool.acquire(&mut context, key, 7, deadline_ns, false);
    assert!(matches!(acquired, Acquired::Waiting(_)), "{acquired:?}");
    let watchdog_ns = monotonic_ns() + WATCHDOG_NS;
    let mut result = None;
    loop {
        if let Some(outcome) = pool.next_outcome() {
            assert_eq!(outcome.token, 7);
            result = Some(outcome.result);
        }
        if let Some(Ok(lease)) = &result {
            // The second time it has no owner any more.
            let mut context = ShardContext {
                now_ns: driver.clock_ns(),
                driver: &mut driver,
                timers: &mut timers,
                pools: &mut pools,
                shard_index: 0,
            };
            pool.discard(&mut context, lease.socket);
        }
        pool.verify();
        if driver.socket_count() == 0
            && let Some(result) = result.take()
        {
            return result;
        }
        assert!(monotonic_ns() < watchdog_ns, "no outcome");
        let until_ns = driver.clock_ns() + 1_000_000;
        let handler = |driver: &mut D, pools: &mut ShardPools, event: Event<'_>| {
            let mut context = ShardContext {
                now_ns: driver.now_ns(),
                driver,
                timers: &mut timers,
                pools,
                shard_index: 0,
            };
            let _ = pool.event(&mut context, &event);
        };
        driver.tick(Some(until_ns), &mut pools, handler).unwrap();
    }
}

fn over_each_driver(mut scene: impl FnMut(&dyn Fn(Target) -> Result<Lease, AcquireError>)) {
    let mode = PoolMode::On;
    scene(&|target| {
        let driver = Tls::towards_others(EpollDriver::new(mode).unwrap(), None, mode);
        acquire(driver, target)
    });
    if millpond_io::driver::uring::probe().is_ok() {
        scene(&|target| {
            let driver = Tls::towards_others(UringDriver::new(mode).unwrap(), None, mode);
            acquire(driver, target)
        });
    }
}

fn target(address: SocketAddr, options: TlsClientOptions) -> Target {
    Target::at(address.into()).with_tls(TlsClient::load(options).unwrap())
}

/// Goal: the right server is accepted and its handshake timed; another name's is not, and neither is
/// one that shows no certificate we trust.
#[test]
fn the_servers_certificate_is_verified() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.certificate_path();
    let files = certificate.parent().unwrap();
    over_each_driver(|acquire| {
        let (address, server) = serve_once(files, false);
        let lease = acquire(target(address, options(NAME, &certificate, None))).unwrap();
        assert!(!lease.is_reused && lease.times.tls_ns > 0);
        assert!(server.join().unwrap());
        for (name, trusted) in [
            ("other.test", &certificate),
            (NAME, &other.certificate_path()),
        ] {
            let (address, server) = serve_once(files, false);
            let error = acquire(target(address, options(name, trusted, None))).unwrap_err();
            assert!(matches!(error, AcquireError::Tls(_)), "{error:?}");
            assert_eq!(error.phase(), AcquirePhase::Tls);
            assert!(!server.join().unwrap());
        }
    });
}

/// Goal: a server that requires a client certificate gets ours, and refuses a client without.
#[test]
fn the_clients_certificate_is_shown() {
    let authority = Authority::new();
    let certificate = authority.certificate_path();
    let files = certificate.parent().unwrap();
    let identity = CertificateFiles {
        certificate: certificate.clone(),
        key: files.join("server.key"),
    };
    over_each_driver(|acquire| {
        for (identity, is_welcome) in [(Some(identity.clone()), true), (None, false)] {
            let (address, server) = serve_once(files, true);
            // With TLS 1.3 a client learns of its refusal after its own handshake is over.
            let acquired = acquire(target(address, options(NAME, &certificate, identity)));
            assert!(acquired.is_ok() || !is_welcome, "{acquired:?}");
            assert_eq!(server.join().unwrap(), is_welcome);
        }
    });
}

/// Goal: a driver without TLS never connects in plaintext instead.
#[test]
fn a_driver_without_tls_refuses() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let options = options(NAME, &authority.certificate_path(), None);
    let target = target(listener.local_addr().unwrap(), options);
    let driver = EpollDriver::new(PoolMode::On).unwrap();
    let error = acquire(driver, target).unwrap_err();
    assert!(matches!(error, AcquireError::Local(_)), "{error:?}");
    assert!(listener.accept().is_err(), "nobody connected");
}
