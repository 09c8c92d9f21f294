//! Addresses as scripts see them: what `wrk.lookup` finds, `wrk.connect` tries and `thread.addr` is.
//!
//! Absent on purpose: names of services beyond those in /etc/services.
use millpond_io::Address;
use mlua::{FromLua, Lua, MetaMethod, UserData, UserDataMethods, Value};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long `wrk.connect` waits for an address that does not answer at all.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// An address in the hands of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ScriptAddress(pub(super) Address);

impl ScriptAddress {
    /// Whether something listens there.
    pub(super) fn accepts_connections(&self) -> bool {
        match &self.0 {
            Address::Inet(address) => TcpStream::connect_timeout(address, CONNECT_MAX).is_ok(),
            Address::Unix(path) => std::os::unix::net::UnixStream::connect(path).is_ok(),
        }
    }
}

impl UserData for ScriptAddress {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, address, ()| {
            // Without brackets around an IPv6 address: as wrk writes it.
            Ok(match &address.0 {
                Address::Inet(inet) => format!("{}:{}", inet.ip(), inet.port()),
                Address::Unix(path) => path.display().to_string(),
            })
        });
    }
}

impl FromLua for ScriptAddress {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<Self> {
        let found = value.type_name();
        let given = match &value {
            Value::UserData(data) => data.borrow::<Self>().ok(),
            _ => None,
        };
        given.map(|address| address.clone()).ok_or_else(|| {
            mlua::Error::runtime(format!(
                "an address that wrk.lookup() returned is wanted here, not a {found}"
            ))
        })
    }
}

/// All addresses of a host and a service, which may be a number or a name of /etc/services.
pub(super) fn look_up(host: &str, service: &str) -> Result<Vec<ScriptAddress>, String> {
    let fail = |cause: &str| format!("unable to resolve {host}:{service} {cause}");
    let port = service.parse().ok().or_else(|| port_of(service));
    let port: u16 = port.ok_or_else(|| fail("the service is unknown"))?;
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|error| fail(&error.to_string()))?;
    let wrap = |address: SocketAddr| ScriptAddress(address.into());
    Ok(found.map(wrap).collect())
}

fn port_of(service: &str) -> Option<u16> {
    match service {
        "http" => Some(80),
        "https" => Some(443),
        _ => port_in(&std::fs::read_to_string("/etc/services").ok()?, service),
    }
}

/// The TCP port of `service` in a table like /etc/services: `name port/tcp alias... # comment`.
fn port_in(table: &str, service: &str) -> Option<u16> {
    table.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let name = words.next()?;
        let port = words.next()?.strip_suffix("/tcp")?;
        let is_meant = name == service || words.any(|alias| alias == service);
        port.parse().ok().filter(|_| is_meant)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn services_are_numbers_or_names() {
        let table = "# all\nwww 80/tcp http-alt web # pages\ndns 53/udp\ndns 54/tcp\n";
        assert_eq!(port_in(table, "web"), Some(80));
        assert_eq!(port_in(table, "dns"), Some(54));
        assert_eq!(port_in(table, "pages"), None);
        let found = look_up("127.0.0.1", "http").unwrap();
        assert_eq!(found, [ScriptAddress("127.0.0.1:80".parse().unwrap())]);
        let error = look_up("127.0.0.1", "no-such-service").unwrap_err();
        assert!(error.contains("127.0.0.1:no-such-service"), "{error}");
    }

    #[test]
    fn connecting_tells_who_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ScriptAddress(listener.local_addr().unwrap().into());
        assert!(address.accepts_connections());
        // The near end of a connection: nobody listens there, and nobody else gets the port.
        let kept = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let address = ScriptAddress(kept.local_addr().unwrap().into());
        assert!(!address.accepts_connections());
    }
}
