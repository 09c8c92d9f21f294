//! Memory pools with accounting and a run-time switch down to malloc
pub mod accounting;
pub mod arena;
pub mod block_pool;
pub mod buffer;
pub mod buffer_pool;
pub mod slab;

pub use accounting::{PoolError, PoolMode, PoolStats};
pub use arena::Arena;
pub use block_pool::{Block, BlockPool, ClassStats};
pub use buffer::Buffer;
pub use buffer_pool::{BufferPool, Lease};
pub use slab::{Handle, Slab};
