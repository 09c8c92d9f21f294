//! The world in memory: the simulator's network, and what its faults may be without breaking the
//! contract.

use crate::world::{Remote, World};
use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimDriver, SimPeer};
use millpond_io::{Address, Errno, Peer};
use millpond_mempool::PoolMode;
use std::io::{Error, ErrorKind, Read, Result, Write};

/// Any number will do: the behaviours hold for every seed.
const SEED: u64 = 4;

/// Drivers in one simulated network.
pub(crate) struct Simulated(Network);

impl Simulated {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        Self(Network::new(SEED, plan))
    }
}

/// Receives end anywhere, one tick reports a socket several times, sockets come in any order.
pub(crate) fn in_pieces() -> FaultPlan {
    FaultPlan {
        split_receives: 0.1,
        bursts: 0.5,
        reorders: true,
        ..FaultPlan::none()
    }
}

/// Every send counts as done at first.
pub(crate) fn sending_late() -> FaultPlan {
    FaultPlan {
        late_sends: 1.0,
        reorders: true,
        ..FaultPlan::none()
    }
}

impl World for Simulated {
    type Driver = SimDriver;
    type Remote = SimulatedRemote;

    fn driver(&self) -> SimDriver {
        self.0.driver(PoolMode::On).unwrap()
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn connect(&self, to: &Address) -> Result<SimulatedRemote> {
        let peer = self.0.connect_to(to)?;
        Ok(SimulatedRemote {
            name: peer.name(),
            peer: Some(peer).into(),
        })
    }
}

pub(crate) struct SimulatedRemote {
    name: Peer,
    peer: std::cell::RefCell<Option<SimPeer>>,
}

impl Read for SimulatedRemote {
    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        let mut bytes = Vec::new();
        let peer = self.peer.get_mut().as_mut().unwrap();
        match peer.read(&mut bytes, room.len()) {
            PeerRead::Bytes(count) => {
                room[..count].copy_from_slice(&bytes);
                Ok(count)
            }
            PeerRead::Finished => Ok(0),
            PeerRead::Nothing => Err(Error::from(ErrorKind::WouldBlock)),
            PeerRead::Failed(error) => Err(error.into()),
        }
    }
}

impl Write for SimulatedRemote {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self.peer.get_mut().as_mut().unwrap().write(bytes) {
            Ok(0) => Err(Error::from(ErrorKind::WouldBlock)),
            outcome => outcome.map_err(Errno::into),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Remote for SimulatedRemote {
    fn name(&self) -> Peer {
        self.name
    }

    fn finish(&self) {
        self.peer.borrow_mut().as_mut().unwrap().finish();
    }

    fn reset(self) {
        self.peer.take().unwrap().reset();
    }
}
