//! Whether a socket's bytes are wanted, the same for every driver.

/// Whether bytes are wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Receiving {
    On,
    Paused,
    /// The peer's FIN was reported.
    Finished,
}
