//! How much a pool may hold, and how much it holds.
//!
//! On the path: asked before every chunk and every direct block, never on the fast path.
use crate::PoolError;

/// Bytes a pool has reserved, under its limit.
/// Invariant: `reserved_bytes <= limit_bytes`. In this order: see `LocalPool`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Budget {
    reserved_bytes: usize,
    limit_bytes: usize,
}

impl Budget {
    /// Nothing reserved yet; `usize::MAX` means no limit.
    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            reserved_bytes: 0,
        }
    }

    /// Notes a reservation, or refuses it and notes nothing.
    pub(crate) const fn take(&mut self, requested_bytes: usize) -> Result<(), PoolError> {
        let limit_bytes = self.limit_bytes;
        if requested_bytes > limit_bytes - self.reserved_bytes {
            return Err(PoolError::BudgetExhausted {
                requested_bytes,
                limit_bytes,
            });
        }
        self.reserved_bytes += requested_bytes;
        Ok(())
    }

    /// Notes that `bytes` of what was taken went back to the system.
    pub(crate) const fn give_back(&mut self, bytes: usize) {
        assert!(bytes <= self.reserved_bytes, "more given back than taken");
        self.reserved_bytes -= bytes;
    }

    /// Bytes taken and not given back.
    pub(crate) const fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the last byte is granted, one more is refused, and a refusal changes nothing.
    #[test]
    fn limit_is_exact_and_refusal_harmless() {
        let mut budget = Budget::new(100);
        budget.take(99).unwrap();
        let refusal = PoolError::BudgetExhausted {
            requested_bytes: 2,
            limit_bytes: 100,
        };
        assert_eq!(budget.take(2), Err(refusal));
        assert_eq!(budget.reserved_bytes(), 99);
        budget.take(1).unwrap();
        budget.give_back(100);
        assert_eq!(budget.reserved_bytes(), 0);
        assert!(Budget::new(usize::MAX).take(usize::MAX).is_ok());
    }
}
