//! Letting a system call write into memory that holds nothing yet, without unsafe at the caller's.
//!
//! On the path: `io` receives into a `Lease` and reads files into a `Buffer` through this.
//! Zeroing the memory first would be simpler, but costs 64 KiB of writes per receive when pools are
//! off and every buffer is fresh from malloc.
use std::mem::MaybeUninit;

/// Calls `fill` with the room; returns how many bytes from the room's beginning it initialised,
/// which is the length of the slice it returns.
///
/// # Panics
/// When `fill` returns something else than a beginning of the room.
pub(crate) fn fill_beginning<E>(
    room: &mut [MaybeUninit<u8>],
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<&mut [u8], E>,
) -> Result<usize, E> {
    let (room_start, room_bytes) = (room.as_ptr().addr(), room.len());
    let filled = fill(room)?;
    // A slice of initialised bytes that begins where the room begins and ends inside it is the
    // proof: nobody but `fill`, which had the room for itself, can have made it.
    let is_beginning = filled.as_ptr().addr() == room_start && filled.len() <= room_bytes;
    assert!(
        filled.is_empty() || is_beginning,
        "`fill` must return the beginning of its room"
    );
    Ok(filled.len())
}
