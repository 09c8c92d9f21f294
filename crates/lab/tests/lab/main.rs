//! The lab on real processes of this system: python, nginx, redis, node, Java, shell scripts, small C programs.

mod common;
mod subject;
mod inherited;
mod presence;
mod heap;
mod memory;
mod phases;
mod coexistence;
mod candidates;
mod compare;
mod failing;
mod emulated;
mod flames;
mod foreign;
mod profile;
mod memory_owners;
mod running;
mod requests;
mod runtimes;
