//! The required behavior of every driver, seen from outside. Each behaviour is one function, generic over the `World`
//! that makes drivers and their peers; a driver joins by a module at the end of this file.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../tls_support/mod.rs"]
mod tls_support;
mod world;
mod simulated;
mod tls;
mod harness;
mod flow;
mod door;
mod crowd;
mod sharing;
mod ends;
mod closing;
mod waiting;

/// Makes a test of each behaviour, for machines that have the driver's kernel interface.
macro_rules! tests_of {
    ($is_here:expr, $world:expr, { $($module:ident: $($behaviour:ident)*;)* }) => { $( $(
        #[test]
        fn $behaviour() {
            if $is_here {
                crate::$module::$behaviour(&$world);
            }
        }
    )* )* }
}

/// The behaviours of every driver in every world, so that none can leave one out.
macro_rules! behaviours_everywhere {
    ($is_here:expr, $world:expr) => {
        tests_of!($is_here, $world, {
            flow: peers_do_not_block bytes_come_back_in_order a_driver_talks_to_itself
                single_bytes_arrive_whole large_input_arrives_whole a_crowd_arrives_whole
                a_slow_reader_blocks_and_drains sends_of_one_tick_keep_their_order
                sends_wait_for_connect pausing_holds_bytes_back pauses_and_resumes_keep_the_order
                a_flood_is_held_back_by_one_receive
                unix_sockets_carry_bytes;
            ends: a_fin_is_reported_once_and_sending_goes_on a_reset_fails_the_socket
                a_sent_fin_comes_last_and_receiving_goes_on a_fin_behind_a_pause_is_found_by_asking
                a_reset_reaches_a_paused_socket a_refused_connect_fails
                a_send_to_a_gone_peer_fails what_arrived_comes_before_a_failed_send
                dead_ids_are_ignored a_socket_closed_by_another_handler_stays_silent
                one_listener_at_a_time stopping_takes_the_waiting a_close_keeps_what_was_done
                a_reset_takes_back_what_is_not_read a_dropped_driver_lets_its_peers_go;
            closing: the_answer_survives_unread_input the_queue_goes_out_before_the_fin
                a_peer_that_stays_is_dropped a_peer_that_keeps_sending_is_dropped
                closing_after_the_peer_is_immediate nothing_is_heard_of_a_closing_socket;
            waiting: wakes_between_ticks_count_once a_wait_is_never_cut_short
                a_past_deadline_only_looks events_carry_a_time_not_before_them;
        });
    };
}

/// Those and what only holds over a kernel, which splits nothing on purpose and shares its time
/// with other threads.
macro_rules! behaviours_on_a_kernel {
    ($is_here:expr, $make:expr) => {
        behaviours_everywhere!($is_here, crate::world::Kernel($make));
        tests_of!($is_here, crate::world::Kernel($make), {
            flow: a_message_costs_one_receive_and_one_send a_file_makes_no_later_send_wait
                an_urgent_byte_holds_nothing_back;
            crowd: a_flood_leaves_everybody_a_turn a_crowd_waits_behind_who_is_served
                who_leaves_waits_for_a_turn who_resets_waits_for_a_turn
                who_was_answered_and_resets_waits_for_a_turn turns_go_round
                nobody_waits_without_regulars closes_take_turns
                closes_that_wait_are_bounded
                who_waits_is_told_of_once what_is_left_is_said;
            door: floods_leave_the_door_open;
            sharing: regulars_are_served_in_turn;
            waiting: a_waker_ends_an_endless_wait a_spin_ends_for_a_reason;
        });
    };
}

/// Long enough to meet events in many tests, short enough for their number.
const BUSY_POLL_NS: u64 = 100_000;

mod epoll_pools_on {
    behaviours_on_a_kernel!(true, || {
        millpond_io::EpollDriver::new(millpond_mempool::PoolMode::On).unwrap()
    });
}

/// Only one driver is tested for not spinning by default. io_uring has received before turns can be distinguished.
mod epoll_alone {
    tests_of!(
        true,
        crate::world::Kernel(
            || millpond_io::EpollDriver::new(millpond_mempool::PoolMode::On).unwrap()
        ),
        {
            waiting: nobody_spins_unasked;
            crowd: turns_are_short_beside_regulars;
        }
    );
}

/// Features that change only the time until an event is seen.
mod epoll_busy_polling {
    use millpond_io::Driver;
    behaviours_on_a_kernel!(true, || {
        let mut driver = millpond_io::EpollDriver::new(millpond_mempool::PoolMode::On).unwrap();
        driver.set_busy_poll(crate::BUSY_POLL_NS);
        driver
    });
}

mod epoll_pools_off {
    behaviours_on_a_kernel!(true, || {
        millpond_io::EpollDriver::new(millpond_mempool::PoolMode::Off).unwrap()
    });
}

mod epoll_whole_ms_waits {
    behaviours_on_a_kernel!(true, || {
        millpond_io::EpollDriver::with_whole_ms_waits(millpond_mempool::PoolMode::On).unwrap()
    });
}

mod simulated_calm {
    behaviours_everywhere!(
        true,
        crate::simulated::Simulated::new(millpond_io::driver::sim::FaultPlan::none())
    );
    tests_of!(
        true,
        crate::simulated::Simulated::new(millpond_io::driver::sim::FaultPlan::none()),
        {
            flow: a_message_costs_one_receive_and_one_send;
            waiting: a_waker_ends_an_endless_wait;
        }
    );
}

/// Whatever order and pieces a kernel may choose without breaking the contract.
mod simulated_in_pieces {
    behaviours_everywhere!(
        true,
        crate::simulated::Simulated::new(crate::simulated::in_pieces())
    );
}

/// Sends that are made with the next wait.
mod simulated_sending_late {
    behaviours_everywhere!(
        true,
        crate::simulated::Simulated::new(crate::simulated::sending_late())
    );
}

/// Drivers over io_uring, with and without some of its features. Where io_uring is forbidden there is nothing to test;
/// that case is tested elsewhere.
mod uring {
    use millpond_io::{DriverFeature, UringDriver};
    use millpond_mempool::PoolMode;

    pub(crate) fn is_here() -> bool {
        millpond_io::driver::uring::probe()
            .inspect_err(|why| eprintln!("not tested: {why}"))
            .is_ok()
    }

    pub(crate) fn without(mode: PoolMode, missing: &[DriverFeature]) -> UringDriver {
        let found = millpond_io::driver::uring::probe().unwrap();
        let features = missing
            .iter()
            .fold(found, |set, feature| set.without(*feature));
        UringDriver::with_features(mode, features).unwrap()
    }

    mod all_features {
        behaviours_on_a_kernel!(super::is_here(), || super::without(
            super::PoolMode::On,
            &[]
        ));
    }

    mod does_not_spin_unasked {
        tests_of!(
            super::is_here(),
            crate::world::Kernel(|| super::without(super::PoolMode::On, &[])),
            { waiting: nobody_spins_unasked; }
        );
    }

    mod busy_polling {
        behaviours_on_a_kernel!(super::is_here(), || {
            super::UringDriver::busy_polling(super::PoolMode::On, crate::BUSY_POLL_NS).unwrap()
        });
    }

    /// Spins that have to ask the kernel.
    mod busy_polling_without_a_flag {
        use millpond_io::{Driver, DriverFeature};
        behaviours_on_a_kernel!(super::is_here(), || {
            let mut driver = super::without(super::PoolMode::On, &[DriverFeature::TaskRunFlag]);
            driver.set_busy_poll(crate::BUSY_POLL_NS);
            driver
        });
    }

    mod pools_off {
        behaviours_on_a_kernel!(super::is_here(), || super::without(
            super::PoolMode::Off,
            &[]
        ));
    }

    /// Each feature taken away alone: the driver has to work without it, and to report that.
    macro_rules! each_missing {
        ($($missing:ident: $name:ident;)*) => {
            $( mod $name {
                behaviours_on_a_kernel!(super::is_here(), || {
                    let missing = millpond_io::DriverFeature::$missing;
                    super::without(super::PoolMode::On, &[missing])
                });
            } )*

            /// Goal: no feature is left without its module above or its reason here.
            #[test]
            fn each_feature_is_taken_away_or_indispensable() {
                let tested = [$( DriverFeature::$missing ),*];
                for feature in DriverFeature::ALL {
                    let is_indispensable = feature == DriverFeature::BufferRing;
                    assert_ne!(tested.contains(&feature), is_indispensable, "{feature:?}");
                }
            }
        };
    }

    each_missing! {
        MultishotReceive: no_multishot_receive;
        IncrementalBuffers: no_incremental_buffers;
        SkipSuccess: no_skip_success;
        DeferredTaskRun: no_deferred_task_run;
        SingleIssuer: no_single_issuer;
        RegisteredRing: no_registered_ring;
        NoSubmissionArray: no_submission_in_place;
        AbsoluteTimeouts: no_absolute_timeouts;
        TaskRunFlag: no_task_run_flag;
    }

    /// Goal: a driver does not use disabled features, and reports that.
    #[test]
    fn a_driver_says_what_it_lacks() {
        use millpond_io::Driver;
        let Ok(found) = millpond_io::driver::uring::probe() else {
            return;
        };
        for feature in found.iter() {
            let wanted = found.without(feature);
            match UringDriver::with_features(PoolMode::On, wanted) {
                Ok(driver) => {
                    let mut expected = wanted;
                    if feature == DriverFeature::SingleIssuer {
                        expected = expected.without(DriverFeature::DeferredTaskRun);
                    }
                    assert_eq!(driver.features(), expected);
                }
                Err(error) => {
                    assert_eq!(feature, DriverFeature::BufferRing);
                    assert!(error.to_string().contains("buffer ring"), "{error}");
                }
            }
        }
    }

    /// As on Linux 5.19 or 6.0.
    mod old_kernel {
        behaviours_on_a_kernel!(super::is_here(), || {
            let missing = millpond_io::DriverFeature::ALL
                .into_iter()
                .filter(|feature| *feature != millpond_io::DriverFeature::BufferRing);
            super::without(super::PoolMode::On, &missing.collect::<Vec<_>>())
        });
    }
}

/// The same drivers with TLS over them. Not tested this way is what is not encrypted (connections
/// that the driver makes) and what counts the bytes of the wire.
mod encrypted {
    use crate::simulated::Simulated;
    use crate::tls::Encrypted;
    use crate::world::Kernel;
    use millpond_io::driver::sim::FaultPlan;
    use millpond_io::{EpollDriver, UringDriver};
    use millpond_mempool::PoolMode;
    use rustls::version::{TLS12, TLS13};

    macro_rules! behaviours_encrypted {
        ($is_here:expr, $world:expr) => {
            tests_of!($is_here, $world, {
                flow: peers_do_not_block single_bytes_arrive_whole large_input_arrives_whole
                    a_crowd_arrives_whole a_slow_reader_blocks_and_drains
                    sends_of_one_tick_keep_their_order  pausing_holds_bytes_back pauses_and_resumes_keep_the_order;
                ends: a_fin_is_reported_once_and_sending_goes_on a_reset_fails_the_socket
                    a_reset_reaches_a_paused_socket a_refused_connect_fails
                    a_send_to_a_gone_peer_fails what_arrived_comes_before_a_failed_send dead_ids_are_ignored
                    a_socket_closed_by_another_handler_stays_silent
                    one_listener_at_a_time stopping_takes_the_waiting a_close_keeps_what_was_done
                    a_reset_takes_back_what_is_not_read a_dropped_driver_lets_its_peers_go;
                closing: the_answer_survives_unread_input the_queue_goes_out_before_the_fin
                    a_peer_that_stays_is_dropped a_peer_that_keeps_sending_is_dropped
                    closing_after_the_peer_is_immediate nothing_is_heard_of_a_closing_socket;
                waiting: wakes_between_ticks_count_once a_wait_is_never_cut_short
                    a_past_deadline_only_looks events_carry_a_time_not_before_them;
            });
        };
    }

    fn epoll() -> Kernel<EpollDriver> {
        Kernel(|| EpollDriver::new(PoolMode::On).unwrap())
    }

    fn uring() -> Kernel<UringDriver> {
        Kernel(|| UringDriver::new(PoolMode::On).unwrap())
    }

    mod epoll_tls13 {
        behaviours_encrypted!(true, super::Encrypted::new(super::epoll(), &super::TLS13));
    }

    mod epoll_tls12 {
        behaviours_encrypted!(true, super::Encrypted::new(super::epoll(), &super::TLS12));
    }

    mod uring_tls13 {
        behaviours_encrypted!(
            crate::uring::is_here(),
            super::Encrypted::new(super::uring(), &super::TLS13)
        );
    }

    mod simulated_calm {
        behaviours_encrypted!(
            true,
            super::Encrypted::new(
                super::Simulated::new(super::FaultPlan::none()),
                &super::TLS13
            )
        );
    }

    mod simulated_in_pieces {
        behaviours_encrypted!(
            true,
            super::Encrypted::new(
                super::Simulated::new(crate::simulated::in_pieces()),
                &super::TLS13
            )
        );
    }

    mod simulated_sending_late {
        behaviours_encrypted!(
            true,
            super::Encrypted::new(
                super::Simulated::new(crate::simulated::sending_late()),
                &super::TLS12
            )
        );
    }
}
