//! What every driver must do, as seen from outside. Each behaviour is one generic function; a
//! driver joins by one line at the end of this file.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod harness;
mod flow;
mod ends;
mod closing;
mod waiting;

/// Instantiates every behaviour for one driver.
macro_rules! behaviours_of {
    ($driver:ident, $make:expr, { $($module:ident: $($behaviour:ident)*;)* }) => {
        mod $driver { $( $(
            #[test]
            fn $behaviour() {
                super::$module::$behaviour(&$make);
            }
        )* )* }
    };
}

/// The list of behaviours, so that no driver can leave one out.
macro_rules! all_behaviours_of {
    ($driver:ident, $make:expr) => {
        behaviours_of!($driver, $make, {
            flow: bytes_come_back_in_order a_driver_talks_to_itself single_bytes_arrive_whole
                large_input_arrives_whole a_slow_reader_blocks_and_drains sends_wait_for_connect
                pausing_holds_bytes_back unix_sockets_carry_bytes;
            ends: a_fin_is_reported_once_and_sending_goes_on a_reset_fails_the_socket
                a_reset_reaches_a_paused_socket a_refused_connect_fails
                a_send_to_a_gone_peer_fails dead_ids_are_ignored
                a_socket_closed_by_another_handler_stays_silent
                one_listener_at_a_time stopping_takes_the_waiting;
            closing: the_answer_survives_unread_input the_queue_goes_out_before_the_fin
                a_peer_that_stays_is_dropped a_peer_that_keeps_sending_is_dropped
                closing_after_the_peer_is_immediate nothing_is_heard_of_a_closing_socket;
            waiting: a_waker_ends_an_endless_wait wakes_between_ticks_count_once
                a_wait_is_never_cut_short a_past_deadline_only_looks
                events_carry_a_time_not_before_them;
        });
    };
}

all_behaviours_of!(epoll_pools_on, || millpond_io::EpollDriver::new(
    millpond_mempool::PoolMode::On
)
.unwrap());
all_behaviours_of!(epoll_pools_off, || millpond_io::EpollDriver::new(
    millpond_mempool::PoolMode::Off
)
.unwrap());
all_behaviours_of!(epoll_whole_ms_waits, || {
    millpond_io::EpollDriver::with_whole_ms_waits(millpond_mempool::PoolMode::On).unwrap()
});
