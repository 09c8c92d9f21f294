//! What a completion is about, in the 64 bits that travel with a submission.
//!
//! ```text
//! | generation: 32 | operation: 4 | slot: 28 |
//! ```
//! Absent on purpose: the state of operations. A socket knows which of its own are with the
//! kernel, and keeps its slot until the last one has come back.

use crate::driver::SocketId;

const SLOT_BITS: u32 = 28;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Operation {
    /// Whether connections wait.
    Accept = 1,
    /// Bytes of a socket.
    Receive = 2,
    /// The bytes of one tick, now or never.
    SendNow = 3,
    /// Queued bytes, when the kernel has room.
    SendQueued = 4,
    /// The end of a handshake.
    Connect = 5,
    /// The failure of a socket of which nobody receives.
    Watch = 6,
    /// The waker's eventfd.
    Wake = 7,
    /// Cancelling others: nobody waits for it.
    Cancel = 8,
}

impl Operation {
    const ALL: [Self; 8] = [
        Self::Accept,
        Self::Receive,
        Self::SendNow,
        Self::SendQueued,
        Self::Connect,
        Self::Watch,
        Self::Wake,
        Self::Cancel,
    ];

    /// The user data of this operation on `socket`.
    #[inline]
    pub(super) const fn on(self, socket: SocketId) -> u64 {
        socket.to_bits() | (self as u64) << SLOT_BITS
    }

    /// The user data of an operation without a socket.
    #[inline]
    pub(super) const fn alone(self) -> u64 {
        (self as u64) << SLOT_BITS
    }

    /// The inverse. `None`: not ours, which a kernel has no reason to send.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each part is cut out on purpose"
    )]
    pub(super) fn from_user_data(bits: u64) -> Option<(Self, SocketId)> {
        let low = bits as u32;
        let number = (low >> SLOT_BITS) as usize;
        let operation = *Self::ALL.get(number.wrapping_sub(1))?;
        let socket = SocketId::new(low & SLOT_MASK, (bits >> 32) as u32);
        Some((operation, socket))
    }
}

/// More sockets than slots can be told apart.
pub(super) const fn is_slot_nameable(slot: u32) -> bool {
    slot <= SLOT_MASK
}

/// Goal: what goes in comes out, for the smallest and the largest parts.
#[test]
fn user_data_names_operation_and_socket() {
    for operation in Operation::ALL {
        for (slot, generation) in [(0, 0), (1, u32::MAX), (SLOT_MASK, 7), (SLOT_MASK, u32::MAX)] {
            let socket = SocketId::new(slot, generation);
            assert_eq!(
                Operation::from_user_data(operation.on(socket)),
                Some((operation, socket))
            );
        }
    }
    assert_eq!(Operation::from_user_data(0), None);
    assert_eq!(Operation::from_user_data(u64::MAX), None);
    assert!(is_slot_nameable(SLOT_MASK) && !is_slot_nameable(SLOT_MASK + 1));
}
