//! The comparison: servers as processes under every allocator
