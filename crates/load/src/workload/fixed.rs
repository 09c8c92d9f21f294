//! A request that is the same each time.
//!
//! On the path: encoded once before the run, copied for each request; a whole pipeline of them is one
//! copy. Absent on purpose: sending them without a copy, since a driver may hold what it sends for
//! longer than the next write.
use super::{Asked, BATCH_BYTES_MAX, make_room};
use millpond_http::Method;
use millpond_mempool::{BlockPool, Buffer, PoolError};

/// Bytes that are the same for each request.
#[derive(Debug)]
pub(crate) struct FixedRequest {
    method: Method,
    request_bytes: usize,
    /// The request again and again: as many as a pipeline holds, within [`BATCH_BYTES_MAX`].
    repeated: Box<[u8]>,
}

impl FixedRequest {
    pub(super) fn new(method: Method, wire: &[u8], pipeline: usize) -> Self {
        let fitting = (BATCH_BYTES_MAX / wire.len().max(1)).max(1);
        Self {
            method,
            request_bytes: wire.len(),
            repeated: wire.repeat(fitting.min(pipeline)).into(),
        }
    }

    pub(crate) fn asked(&self) -> Asked {
        Asked {
            method: self.method,
            class: 0,
        }
    }

    /// Appends it once. `ahead`: how many may follow before `out` is handed over.
    pub(super) fn append(
        &self,
        pool: &BlockPool,
        out: &mut Buffer,
        ahead: usize,
    ) -> Result<Asked, PoolError> {
        make_room(pool, out, self.request_bytes, ahead)?;
        out.append_within_capacity(&self.repeated[..self.request_bytes]);
        Ok(self.asked())
    }

    /// So many of them.
    #[inline]
    pub(crate) fn batch(&self, count: usize, pool: &BlockPool) -> Result<Buffer, PoolError> {
        let mut left_bytes = count * self.request_bytes;
        let mut batch = Buffer::with_capacity(pool, left_bytes)?;
        while left_bytes > 0 {
            let part_bytes = left_bytes.min(self.repeated.len());
            batch.append_within_capacity(&self.repeated[..part_bytes]);
            left_bytes -= part_bytes;
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_mempool::PoolMode;

    /// Goal: however many are asked for at once, and however long a request is, the bytes are those of
    /// so many single requests.
    #[test]
    fn many_are_as_many_single_ones() {
        let pool = BlockPool::new("test", PoolMode::On);
        for (request_bytes, pipeline) in [(1, 3), (50, 16), (9_000, 8), (40_000, 4)] {
            let wire: Vec<u8> = (0..request_bytes).map(|place| place as u8).collect();
            let request = FixedRequest::new(Method::Get, &wire, pipeline);
            for count in 1..=pipeline {
                let many = request.batch(count, &pool).unwrap();
                let mut single = Buffer::new();
                for _ in 0..count {
                    request.append(&pool, &mut single, 1).unwrap();
                }
                assert_eq!(
                    many.as_slice(),
                    wire.repeat(count),
                    "{count} of {request_bytes}"
                );
                assert_eq!(many.as_slice(), single.as_slice());
            }
        }
    }
}
