//! The pool of outgoing connections, from outside: every scene on every driver there is, with one
//! body; then random operations on the simulator against a model.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../tls_support/mod.rs"]
mod tls_support;
mod world;
mod pond;
mod scenes;
mod faults;
mod names;
mod encrypted;
mod model;

use millpond_mempool::PoolMode;

/// Makes a test of each scene, for machines that have the driver's kernel interface.
macro_rules! scenes_in {
    ($is_here:expr, $world:expr, { $($module:ident: $($scene:ident)*;)* }) => { $( $(
        #[test]
        fn $scene() {
            if $is_here {
                crate::$module::$scene(&$world);
            }
        }
    )* )* }
}

macro_rules! all_scenes_in {
    ($is_here:expr, $world:expr) => {
        scenes_in!($is_here, $world, {
            scenes: the_newest_is_used_first waiters_are_served_in_order
                the_cap_of_all_takes_from_others a_starved_key_gets_what_is_given_back
                idle_connections_end worn_connections_end a_wait_ends_at_its_deadline
                who_cancels_gets_nothing some_connections_serve_once
                a_removed_key_leaves_nothing too_many_may_not_wait unix_sockets_are_kept_too
                a_parked_connection_is_small;
            faults: a_peer_that_closes_is_noticed a_byte_nobody_asked_for_ends_it
                a_reset_while_parked_is_noticed a_reset_while_leased_is_the_holders
                a_refusal_is_told a_silent_address_times_out the_next_address_is_tried
                a_silent_address_does_not_hold_up_the_next;
            names: a_name_leads_to_its_addresses a_name_without_address_fails_at_once
                a_name_is_looked_up_again;
        });
    };
}

mod simulated {
    all_scenes_in!(true, crate::world::Simulated::calm());
}

/// Whatever order and pieces a kernel may choose.
mod simulated_in_pieces {
    all_scenes_in!(true, crate::world::Simulated::in_pieces());
}

mod epoll {
    use super::PoolMode;
    all_scenes_in!(
        true,
        crate::world::Kernel::new(|| millpond_io::EpollDriver::new(PoolMode::On).unwrap())
    );
}

mod uring {
    use super::PoolMode;
    fn is_here() -> bool {
        millpond_io::driver::uring::probe()
            .inspect_err(|why| eprintln!("not tested: {why}"))
            .is_ok()
    }
    all_scenes_in!(
        is_here(),
        crate::world::Kernel::new(|| millpond_io::UringDriver::new(PoolMode::On).unwrap())
    );
}
