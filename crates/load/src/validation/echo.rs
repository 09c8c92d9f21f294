//! Whether a key occurs in a body that arrives in parts.
//!
//! Absent on purpose: keeping the body. Of each part only as much is kept as a key could begin in.
use crate::workload::KEY_BYTES_MAX;
use memchr::memmem;

/// One search; reused.
#[derive(Debug)]
pub(super) struct EchoSearch {
    is_found: bool,
    /// The end of what came before, shorter than the key.
    tail: [u8; 2 * KEY_BYTES_MAX],
    tail_bytes: usize,
}

impl Default for EchoSearch {
    fn default() -> Self {
        Self {
            is_found: false,
            tail: [0; 2 * KEY_BYTES_MAX],
            tail_bytes: 0,
        }
    }
}

impl EchoSearch {
    pub(super) fn begin(&mut self) {
        self.is_found = false;
        self.tail_bytes = 0;
    }

    pub(super) fn is_found(&self) -> bool {
        self.is_found
    }

    /// Looks for `key`, the same for all parts of a body, in the next part.
    pub(super) fn look(&mut self, key: &[u8], part: &[u8]) {
        if self.is_found {
            return;
        }
        // Across the seam: what was kept, and as much of the part as the key could reach into.
        let reach = part.len().min(key.len().saturating_sub(1));
        let end = self.tail_bytes + reach;
        self.tail[self.tail_bytes..end].copy_from_slice(&part[..reach]);
        self.is_found =
            memmem::find(&self.tail[..end], key).is_some() || memmem::find(part, key).is_some();
        let kept = key.len().saturating_sub(1);
        if part.len() >= kept {
            self.tail[..kept].copy_from_slice(&part[part.len() - kept..]);
            self.tail_bytes = kept;
        } else {
            let kept = kept.min(end);
            self.tail.copy_within(end - kept..end, 0);
            self.tail_bytes = kept;
        }
    }
}
