use super::*;
use proptest::prelude::*;

fn served() -> Usage {
    let mut usage = Usage::NEW;
    usage.received(100);
    usage.sent();
    usage
}

/// Goal: only short messages in few pieces, each with its response before the next, are prompt; a load ends that until
/// a short one gets its response, and a flood for longer.
#[test]
fn a_client_that_asks_and_waits_is_prompt() {
    assert!(!Usage::NEW.is_prompt() && served().is_prompt());
    let mut dribbling = served();
    for _ in 0..MESSAGE_PIECES_MAX {
        assert!(dribbling.is_prompt(), "{dribbling:?}");
        dribbling.received(1);
    }
    dribbling.received(1);
    assert!(!dribbling.is_prompt());
    assert_eq!(dribbling.work(), Work::Receive);
    dribbling.sent();
    assert!(dribbling.is_prompt());
    let mut loading = served();
    loading.received(MESSAGE_BYTES_MAX + 1);
    assert_eq!(loading.work(), Work::Bulk);
    loading.sent();
    assert!(!loading.is_prompt());
    loading.received(1);
    loading.sent();
    assert!(loading.is_prompt());
    let mut flooding = served();
    flooding.demote_for_pipelining();
    for time in 0..TIMES_TO_FORGET {
        assert!(!flooding.is_prompt(), "{time}");
        flooding.received(200);
        flooding.sent();
    }
    assert!(flooding.is_prompt());
    let mut ours = Usage::OURS;
    ours.received(IO_BUFFER_BYTES);
    ours.demote_for_pipelining();
    ours.sent();
    assert!(ours == Usage::OURS && ours.is_prompt());
}

/// Goal: others wait only while a prompt client is about, which it is for a while after it asked.
#[test]
fn others_wait_while_a_prompt_client_is_about() {
    let mut scheduler = Scheduler::default();
    let accepts = |scheduler: &mut Scheduler| {
        (0..1_000)
            .take_while(|_| scheduler.admits(Work::Accept))
            .count()
    };
    let mut now_ns = 1_000 * PROTECTED_NS;
    scheduler.begin_tick(now_ns);
    assert_eq!(accepts(&mut scheduler), 40);
    assert!(scheduler.is_prompt(served()) && scheduler.is_prompt(Usage::OURS));
    let asked_ns = now_ns;
    for later_ns in [1, PROTECTED_NS - 1] {
        now_ns = asked_ns + later_ns;
        scheduler.begin_tick(now_ns);
        assert_eq!(accepts(&mut scheduler), 5, "{later_ns}");
    }
    scheduler.begin_tick(asked_ns + PROTECTED_NS);
    assert_eq!(accepts(&mut scheduler), 40);
}

/// For some ticks, how many prompt messages come, and how many pieces of each kind of work.
fn arrivals() -> impl Strategy<Value = Vec<(u32, [usize; 5])>> {
    let few_or_many = prop_oneof![4 => 0..3_usize, 1 => 0..400_usize];
    let tick = (0..2_000_u32, proptest::array::uniform5(few_or_many));
    proptest::collection::vec(tick, 1..60)
}

/// Goal: a receive is never longer than a buffer or shorter than a request, shrinks with their number, and
/// all together keep within a tick's share as long as that is possible.
#[test]
fn receives_shrink_with_the_crowd() {
    assert_eq!(receive_bytes(0), IO_BUFFER_BYTES);
    for ready in 1..10_000 {
        let bytes = receive_bytes(ready);
        assert!((RECEIVE_BYTES_MIN..=IO_BUFFER_BYTES).contains(&bytes));
        assert!(receive_bytes(ready + 1) <= bytes);
        assert!(bytes == RECEIVE_BYTES_MIN || bytes * ready <= RECEIVES_BYTES);
    }
}

proptest! {
    /// Goal: whatever comes, work at place `n` of its queue is done within `n` ticks, no tick takes longer
    /// for it than its budget and one of each kind, and prompt clients leave a third to the others.
    #[test]
    fn nothing_waits_longer_than_its_place_says(ticks in arrivals()) {
        let mut scheduler = Scheduler::default();
        let mut queues: [VecDeque<usize>; 5] = Default::default();
        let reserve_ns: u64 = Work::ALL.iter().map(|work| work.cost_ns()).sum();
        let mut prompt_before = 0_u64;
        let quiet = std::iter::repeat_n((1_u32, [0; 5]), 25_000);
        for (tick, (prompt, came)) in ticks.into_iter().chain(quiet).enumerate() {
            scheduler.begin_tick(1_000_000_000 + tick as u64 * TICK_NS);
            let budget_ns = match scheduler.is_protecting() {
                true => TICK_NS.max(prompt_before * PROMPT_NS / 2),
                false => UNPROTECTED_TICK_NS,
            };
            (0..prompt).for_each(|_| assert!(scheduler.is_prompt(served())));
            let mut spent_ns = 0;
            for ((work, queue), came) in Work::ALL.into_iter().zip(&mut queues).zip(came) {
                // The last tick in which it may be done.
                (0..came).for_each(|_| queue.push_back(tick + queue.len()));
                while let Some(&latest) = queue.front() {
                    if !scheduler.admits(work) {
                        break;
                    }
                    prop_assert!(tick <= latest, "{work:?} waited for {} ticks too long", tick - latest);
                    spent_ns += work.cost_ns();
                    queue.pop_front();
                }
            }
            prop_assert!(spent_ns <= budget_ns + reserve_ns);
            let is_busy = queues.iter().any(|queue| !queue.is_empty());
            prop_assert!(!is_busy || spent_ns + Work::Close.cost_ns() >= prompt_before * PROMPT_NS / 2);
            prompt_before = u64::from(prompt);
            if !is_busy && tick > 60 {
                break;
            }
        }
        prop_assert!(queues.iter().all(VecDeque::is_empty));
    }

    /// Goal: a socket without responses is not prompt for long, whatever it sends; one with short requests and a
    /// response to each is prompt again after a bounded number of responses.
    #[test]
    fn no_past_is_for_ever(past in proptest::collection::vec((0..3_u8, 0..10_000_usize), 0..200)) {
        let mut usage = Usage::NEW;
        for (step, bytes) in past {
            match step {
                0 => usage.received(bytes),
                1 => usage.sent(),
                _ => usage.demote_for_pipelining(),
            }
        }
        let mut silent = usage;
        (0..=MESSAGE_PIECES_MAX).for_each(|_| silent.received(1));
        prop_assert!(!silent.is_prompt());
        for _ in 0..TIMES_TO_FORGET {
            usage.received(1);
            usage.sent();
        }
        prop_assert!(usage.is_prompt());
    }
}
