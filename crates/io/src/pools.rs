//! The memory a shard owns, one pool per use.

use millpond_mempool::{Arena, BlockPool, BufferPool, PoolMode, PoolStats};

/// Size of one I/O buffer: the most bytes one receive delivers. 64 KiB takes what a loopback peer
/// sends at once, and one per shard is cheap.
pub const IO_BUFFER_BYTES: usize = 64 << 10;

/// Buffers a shard may have at most; the epoll driver uses one, a ring keeps several in the kernel.
const IO_BUFFERS_MAX: u16 = 64;

/// The pools of one shard; they never leave its thread, blocks may.
#[derive(Debug)]
pub struct ShardPools {
    /// Whether they pool, or call malloc each time.
    pub mode: PoolMode,
    /// Bytes that live as long as a connection or a response needs them.
    pub blocks: BlockPool,
    /// Scratch memory of the request being handled.
    pub arena: Arena,
    /// Buffers the kernel receives into.
    pub io_buffers: BufferPool,
}

impl ShardPools {
    /// Empty pools; memory comes with use.
    #[must_use]
    pub fn new(mode: PoolMode) -> Self {
        Self {
            mode,
            blocks: BlockPool::new("shard_blocks", mode),
            arena: Arena::new("shard_arena", mode),
            io_buffers: BufferPool::new("shard_io_buffers", mode, IO_BUFFER_BYTES, IO_BUFFERS_MAX),
        }
    }

    /// Gives back half of what was left unused since the last call, in each pool; returns how many
    /// bytes that were. About once a second.
    ///
    /// Of the blocks, of which a flood may have left thousands, only a part is given back here, and the
    /// rest by the shard in its next ticks: the next call counts that.
    pub fn trim(&mut self) -> usize {
        self.blocks.begin_trim() + self.arena.trim() + self.io_buffers.trim()
    }

    /// Calls `visit` with the accounting of each pool.
    pub fn visit_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.blocks.stats());
        visit(self.arena.stats());
        visit(self.io_buffers.stats());
    }
}
