use super::*;

const BULK: u64 = 1_000_000;

fn queue(starved: u64, bulk: u64) -> TurnQueue {
    let mut flooding = Usage::NEW;
    flooding.demote_for_pipelining();
    let mut queue = TurnQueue::new();
    (0..bulk).for_each(|number| queue.push(SocketId::from_bits(BULK + number), flooding));
    (0..starved).for_each(|number| queue.push(SocketId::from_bits(number), Usage::NEW));
    queue
}

fn protecting() -> Scheduler {
    let mut scheduler = Scheduler::default();
    scheduler.begin_tick(1);
    let mut prompt = Usage::NEW;
    prompt.sent();
    assert!(scheduler.is_prompt(prompt));
    scheduler.begin_tick(2);
    assert!(scheduler.is_protecting());
    scheduler
}

/// Goal: each kind in its order, alternating, none of the second beyond the tick's budget; without a
/// client to protect both take what there is.
#[test]
fn floods_are_asked_as_often_as_the_budget_admits() {
    let mut waiting = queue(4, 9);
    let mut scheduler = protecting();
    let bits = |id: SocketId| id.to_bits();
    let next = |waiting: &mut TurnQueue, scheduler: &mut Scheduler| {
        let served = std::iter::from_fn(|| waiting.pop(scheduler)).map(bits);
        served.collect::<Vec<u64>>()
    };
    let first = [0, BULK, 1, BULK + 1, 2, 3];
    assert_eq!(next(&mut waiting, &mut scheduler), first);
    scheduler.begin_tick(3);
    assert_eq!(next(&mut waiting, &mut scheduler), [BULK + 2, BULK + 3]);
    let left: Vec<u64> = (BULK + 4..BULK + 9).collect();
    assert_eq!(next(&mut waiting, &mut Scheduler::default()), left);
    assert!(waiting.is_empty());
}

/// Goal: an unused turn is the next one again.
#[test]
fn a_turn_in_vain_is_made_good() {
    let mut waiting = queue(3, 0);
    let mut scheduler = protecting();
    let id = waiting.pop(&mut scheduler).unwrap();
    waiting.push_again(id, Usage::NEW);
    assert_eq!(waiting.pop(&mut scheduler), Some(id));
}
