use super::*;
use millpond_measure::record::{PhaseEnd, RoundMeasures};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// A program that makes 20,000 calls of malloc for each line that it reads, and writes a line.
const CALLER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  char line[16];
  while (fgets(line, sizeof line, stdin)) {
    for (int i = 0; i < 20000; i++) { void *volatile p = malloc(40); free(p); }
    puts("done"); fflush(stdout);
  }
}
"#;

fn live_bytes(churn: &Churn) -> u64 {
    let mut word = [0; 8];
    let at = offset_of!(ChurnFile, live_bytes) as u64;
    churn.file.read_exact_at(&mut word, at).unwrap();
    u64::from_ne_bytes(word)
}

/// Goal: blocks are made and freed only on request, half of the slots are live then, and one in sixteen of them stays,
/// exactly as documented.
#[test]
fn a_heap_is_aged_while_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("a.c"), directory.path().join("a"));
    fs::write(&source, CALLER).unwrap();
    let mut compiler = Command::new("cc");
    let compiled = compiler.arg("-O1").arg("-o").arg(&program).arg(&source);
    assert!(compiled.status().unwrap().success());
    let churn = Churn::create().unwrap();
    let front = churn.front();
    let mut child = Command::new(&program)
        .env("LD_PRELOAD", front.object)
        .env(front.variable, front.file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut call = |mode| {
        churn.set(mode).unwrap();
        input.write_all(b"go\n").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
        (churn.blocks().unwrap(), live_bytes(&churn))
    };
    assert_eq!(call(ChurnMode::Rest), (0, 0));
    let (blocks, live) = call(ChurnMode::Churn);
    assert!(blocks >= 160_000, "{blocks}");
    assert!(is_enough(blocks));
    // 8,192 blocks, of 2.4 KiB on the average.
    assert!((15 << 20..25 << 20).contains(&live), "{live}");
    let (settled, left) = call(ChurnMode::Settle);
    assert_eq!(settled, blocks);
    assert!((live / 32..live / 8).contains(&left), "{left} of {live}");
    assert_eq!(call(ChurnMode::Rest), (blocks, left));
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// Goal: candidates that were not aged are named, and the others are not.
#[test]
fn a_heap_that_stays_fresh_is_told() {
    let candidate = |name: &str, churned_blocks| {
        let phase_ends = vec![PhaseEnd {
            churned_blocks,
            ..PhaseEnd::default()
        }];
        let round = RoundMeasures {
            phase_ends,
            ..RoundMeasures::default()
        };
        CandidateRounds {
            name: name.to_owned(),
            rounds: vec![round],
            ..CandidateRounds::default()
        }
    };
    let all = [
        candidate("a", Some(1_000_000)),
        candidate("b", Some(12)),
        candidate("c", None),
    ];
    let found = warnings(&all);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("b: a churn allocated and freed 12 blocks"),
        "{found:?}"
    );
}
