use super::*;

/// Goal: both kinds of addresses are reached, each state arrives as one datagram of the protocol's
/// lines, and a manager that goes away does no harm.
#[test]
fn states_arrive_at_either_kind_of_address() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let name = format!("millpond-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
    for (reader, address) in [
        (
            UnixDatagram::bind(&path).unwrap(),
            path.clone().into_os_string(),
        ),
        (
            UnixDatagram::bind_addr(&abstract_name).unwrap(),
            format!("@{name}").into(),
        ),
    ] {
        let manager = ServiceManager::at(&address).unwrap();
        manager.tell(ServiceState::Ready {
            status: "listening on x",
        });
        manager.tell(ServiceState::Failing { status: "no disk" });
        manager.tell(ServiceState::Reloading);
        manager.tell(ServiceState::Stopping);
        let mut room = [0; 256];
        let mut next = || {
            let length = reader.recv(&mut room).unwrap();
            String::from_utf8(room[..length].to_vec()).unwrap()
        };
        assert_eq!(next(), "READY=1\nSTATUS=listening on x\n");
        assert_eq!(next(), "STATUS=no disk\n");
        let reloading = next();
        let time = reloading
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .unwrap();
        assert!(time.trim_end().parse::<u64>().unwrap() > 0, "{reloading}");
        assert_eq!(next(), "STOPPING=1\n");
        drop(reader);
        manager.tell(ServiceState::Stopping);
    }
    assert!(ServiceManager::at(OsStr::new("/nowhere/at/all")).is_err());
}
