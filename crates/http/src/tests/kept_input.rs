use super::*;
use millpond_mempool::PoolMode;
use proptest::prelude::*;

struct Bench {
    blocks: BlockPool,
    pool: Pool<KeptInput>,
}

impl Bench {
    fn new() -> Self {
        Self {
            blocks: BlockPool::new("blocks", PoolMode::On),
            pool: Pool::new("inputs", PoolMode::On),
        }
    }

    fn keep(&self, kept: &mut Option<Pooled<KeptInput>>, arrived: &[u8]) {
        KeptInput::keep(kept, arrived, &self.blocks, &self.pool).unwrap();
    }
}

fn len_of(kept: Option<&Pooled<KeptInput>>) -> usize {
    kept.map_or(0, |input| input.len())
}

/// A receive of 64 KiB of which a few bytes were handled had a block of malloc's to itself, on
/// machines where the network brings so many bytes at once. Goal: none of two such receives.
#[test]
fn two_receives_wait_in_pooled_blocks() {
    let bench = Bench::new();
    let receive = vec![b'x'; 64 << 10];
    let misses_after = || {
        let mut kept = None;
        bench.keep(&mut kept, &receive[10..]);
        bench.keep(&mut kept, &receive);
        assert_eq!(len_of(kept.as_ref()), 2 * receive.len() - 10);
        bench.blocks.stats().misses
    };
    let first = misses_after();
    // A block of malloc's is one each time.
    assert_eq!(misses_after(), first);
}

#[test]
fn nothing_kept_is_nothing() {
    let bench = Bench::new();
    let mut kept = None;
    bench.keep(&mut kept, b"");
    assert!(kept.is_none());
}

proptest! {
    /// Goal: kept bytes come back in order, however they arrived and are taken.
    #[test]
    fn bytes_come_back_in_their_order(
        steps in prop::collection::vec((0_usize..80_000, 0_usize..70_000, any::<bool>()), 1..12),
    ) {
        let bench = Bench::new();
        let (mut kept, mut sent, mut back) = (None, Vec::new(), Vec::new());
        for (arrived_bytes, taken_bytes, joins) in steps {
            let arrived: Vec<u8> =
                (0..arrived_bytes).map(|at| ((sent.len() + at) * 31 % 251) as u8).collect();
            bench.keep(&mut kept, &arrived);
            sent.extend_from_slice(&arrived);
            let Some(mut input) = kept.take() else {
                continue;
            };
            if joins {
                let (all, first) = (input.len(), input.first().len());
                let had_more = input.has_more();
                input.join_next(&bench.blocks).unwrap();
                prop_assert_eq!(input.len(), all);
                prop_assert_eq!(input.first().len() > first, had_more);
            }
            let taken_bytes = taken_bytes.min(input.first().len());
            back.extend_from_slice(&input.first()[..taken_bytes]);
            kept = KeptInput::without_front(input, taken_bytes);
            prop_assert_eq!(len_of(kept.as_ref()), sent.len() - back.len());
        }
        while let Some(input) = kept {
            prop_assert!(!input.first().is_empty());
            back.extend_from_slice(input.first());
            let all = input.first().len();
            kept = KeptInput::without_front(input, all);
        }
        prop_assert!(back == sent);
    }
}
