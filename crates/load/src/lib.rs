//! The load generator: closed and open loop with three clocks
