//! Sockets and time: one shard per thread over a completion-shaped driver
