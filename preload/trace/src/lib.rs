//! Counts heap calls of any program, in front of any allocator
