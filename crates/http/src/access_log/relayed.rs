//! What became of a request that was passed on to another server: which, after how many tries, how long
//! that took, and whose fault it was if it failed.
//!
//! On the path: the proxy notes it with an answer's head, its end or its failure; `shard_log` keeps the
//! last note of a request and packs it into the record as a text of its own, so that requests without
//! one take no more room than before.
//!
//! Absent on purpose: a line for each try. The counters of each upstream have those.

use super::entry::STATUS_CLOSED;
use crate::proxy::Failure;

/// Longest name of an upstream; the rest is cut.
const NAME_BYTES_MAX: usize = 64;

/// Tries, fault, failure, three times, name.
const FIXED_BYTES: usize = 3 + 3 * 4;

/// Longest packed form.
pub(super) const PACKED_BYTES_MAX: usize = FIXED_BYTES + NAME_BYTES_MAX;

/// Whose fault a failure was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    Client,
    Proxy,
    Upstream,
}

impl Fault {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Proxy => "proxy",
            Self::Upstream => "upstream",
        }
    }

    /// Whose fault an answer was that was made here and not by an upstream; `None`: nothing is wrong
    /// with it. `told`: why, as the proxy knows it.
    pub(super) fn of_own_answer(status: u16, told: Option<Failure>) -> Option<Self> {
        match (told, status) {
            (Some(told), _) => Some(told.fault()),
            // The client left, which is its good right.
            (None, STATUS_CLOSED) => None,
            (None, 400..500) => Some(Self::Client),
            (None, 500..) => Some(Self::Proxy),
            (None, _) => None,
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Relayed {
    name: [u8; NAME_BYTES_MAX],
    name_bytes: u8,
    pub(super) tries: u8,
    pub(super) fault: Option<Fault>,
    /// What went wrong, where that is known.
    pub(super) failure: Option<Failure>,
    /// From the last try's beginning until it had a connection.
    pub(super) connect_us: u32,
    /// From then to the first byte of the answer; 0: there was none.
    pub(super) first_byte_us: u32,
    /// The last try, in all.
    pub(super) total_us: u32,
}

/// Saturates after an hour and eleven minutes, which no try takes.
fn microseconds(time_ns: u64) -> u32 {
    u32::try_from(time_ns / 1000).unwrap_or(u32::MAX)
}

impl Relayed {
    pub(crate) fn new(name: &str, tries: u32, times_ns: [u64; 3]) -> Self {
        let mut bytes = [0; NAME_BYTES_MAX];
        let name_bytes = name.len().min(NAME_BYTES_MAX);
        bytes[..name_bytes].copy_from_slice(&name.as_bytes()[..name_bytes]);
        let [connect_us, first_byte_us, total_us] = times_ns.map(microseconds);
        Self {
            name: bytes,
            name_bytes: name_bytes as u8,
            tries: u8::try_from(tries).unwrap_or(u8::MAX),
            fault: None,
            failure: None,
            connect_us,
            first_byte_us,
            total_us,
        }
    }

    /// Of a request that went to no upstream.
    pub(super) fn nowhere(fault: Fault, failure: Option<Failure>) -> Self {
        Self {
            fault: Some(fault),
            failure,
            ..Self::new("", 0, [0; 3])
        }
    }

    /// The same of one that failed.
    pub(crate) fn failed_by(self, failure: Failure) -> Self {
        Self {
            fault: Some(failure.fault()),
            failure: Some(failure),
            ..self
        }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.name_bytes)]
    }

    /// Its packed form, in `room`.
    pub(super) fn pack<'r>(&self, room: &'r mut [u8; PACKED_BYTES_MAX]) -> &'r [u8] {
        room[0] = self.tries;
        room[1] = match self.fault {
            None => 0,
            Some(Fault::Client) => 1,
            Some(Fault::Proxy) => 2,
            Some(Fault::Upstream) => 3,
        };
        // Their number is far below 255.
        room[2] = self.failure.map_or(0, |failure| failure as u8 + 1);
        let times = [self.connect_us, self.first_byte_us, self.total_us];
        for (place, time) in room[3..].chunks_exact_mut(4).zip(times) {
            place.copy_from_slice(&time.to_le_bytes());
        }
        let end = FIXED_BYTES + usize::from(self.name_bytes);
        room[FIXED_BYTES..end].copy_from_slice(self.name());
        &room[..end]
    }

    /// `None` of nothing.
    pub(super) fn unpack(packed: &[u8]) -> Option<Self> {
        let (fixed, name) = packed.split_first_chunk::<FIXED_BYTES>()?;
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let time = |at: usize| {
            u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        Some(Self {
            name: bytes,
            name_bytes: name.len() as u8,
            tries: fixed[0],
            fault: match fixed[1] {
                1 => Some(Fault::Client),
                2 => Some(Fault::Proxy),
                3 => Some(Fault::Upstream),
                _ => None,
            },
            failure: usize::from(fixed[2])
                .checked_sub(1)
                .and_then(|index| Failure::ALL.get(index).copied()),
            connect_us: time(3),
            first_byte_us: time(7),
            total_us: time(11),
        })
    }
}

/// Goal: the cause that the proxy gives counts; without one, the status tells.
#[test]
fn own_answers_have_their_fault() {
    for (told, of_503) in [
        (Some(Failure::NoneUsable), Fault::Upstream),
        (Some(Failure::TooManyOptions), Fault::Client),
        (None, Fault::Proxy),
    ] {
        assert_eq!(Fault::of_own_answer(503, told), Some(of_503), "{told:?}");
    }
    assert_eq!(Fault::of_own_answer(408, None), Some(Fault::Client));
    for status in [200, STATUS_CLOSED] {
        assert_eq!(Fault::of_own_answer(status, None), None);
    }
}

/// Goal: what is packed comes out again, whatever its name and its failure, and nothing is nothing.
#[test]
fn notes_come_out_as_they_went_in() {
    let failures = Failure::ALL.iter().copied().map(Some);
    for (index, failure) in failures.chain([None]).enumerate() {
        let name = "n".repeat(index * 3);
        let times_ns = [1_000, 2_500_000, u64::MAX];
        let relayed = Relayed::new(&name, 300, times_ns);
        let relayed = failure.map_or(relayed, |failure| relayed.failed_by(failure));
        let mut room = [0; PACKED_BYTES_MAX];
        let again = Relayed::unpack(relayed.pack(&mut room));
        assert_eq!(again, Some(relayed));
        assert_eq!(relayed.name().len(), name.len().min(NAME_BYTES_MAX));
        assert_eq!((relayed.tries, relayed.first_byte_us), (u8::MAX, 2_500));
        assert_eq!(relayed.total_us, u32::MAX);
    }
    assert_eq!(Relayed::unpack(&[]), None);
}
