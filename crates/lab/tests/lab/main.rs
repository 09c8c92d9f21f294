//! The lab on real processes of this system: python, nginx, redis, shell scripts, small C programs.

mod common;
mod subject;
mod presence;
mod heap;
mod compare;
mod foreign;
mod profile;
