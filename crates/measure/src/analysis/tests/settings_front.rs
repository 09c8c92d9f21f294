use super::*;
use crate::analysis::analyse;
use crate::record::{Operation, Quantity, RoundMeasures};

fn comparison(ratio: f64, width: f64, verdict: Verdict) -> Comparison {
    let (low, high) = (ratio / (1.0 + width), ratio * (1.0 + width));
    Comparison {
        ratio: Some(ratio),
        ..Comparison::planted(low, high, verdict)
    }
}

fn answer(name: usize, memory: f64, cpu: f64, effect: SettingEffect) -> SettingAnswer {
    let verdict = match effect {
        SettingEffect::Changes => Verdict::Better,
        _ => Verdict::Worse,
    };
    SettingAnswer {
        candidate: format!("a:{name}"),
        setting: name.to_string(),
        effect,
        memory: Some(comparison(memory, 0.001, verdict.clone())),
        cpu: Some(comparison(cpu, 0.001, verdict)),
        ..SettingAnswer::default()
    }
}

fn default() -> SettingAnswer {
    SettingAnswer {
        candidate: "a".to_owned(),
        setting: DEFAULT.to_owned(),
        effect: SettingEffect::Default,
        ..SettingAnswer::default()
    }
}

/// Goal: whatever the places, no member of the front is dominated, every other one that gains something is
/// dominated by a member, the order is that of memory, and what gains nothing is no member.
#[test]
fn the_front_is_what_nothing_dominates() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..2_000 {
        let mut all = vec![default()];
        // Few values, so that ties are frequent.
        let mut ratio = || f64::from(random.u32(5..15)) / 10.0;
        all.extend((0..12).map(|name| answer(name, ratio(), ratio(), SettingEffect::Changes)));
        all.push(answer(99, 0.1, 0.1, SettingEffect::Nothing));
        all.push(answer(98, 0.1, 0.1, SettingEffect::Undecided));
        let front = mark_front(&mut all);
        let of_front: Vec<(f64, f64)> = front
            .iter()
            .map(|name| all.iter().find(|one| one.candidate == *name).unwrap())
            .map(|one| place(one).unwrap())
            .collect();
        assert!(of_front.windows(2).all(|two| two[0].0 <= two[1].0));
        for one in &all {
            let Some(at) = place(one) else {
                assert!(!one.is_on_front, "{}", one.candidate);
                continue;
            };
            let is_dominated = of_front.iter().any(|&member| dominates(member, at));
            assert_ne!(one.is_on_front, is_dominated, "{at:?} {of_front:?}");
            assert_eq!(one.is_on_front, front.contains(&one.candidate));
        }
    }
}

/// Goal: each state of both axes has its effect and its words; "nothing" takes two proofs.
#[test]
fn effects_are_told_with_their_intervals() {
    let told = |memory: Option<&Comparison>, cpu: Option<&Comparison>| {
        (effect(memory, cpu), sentence(memory, cpu))
    };
    let less = comparison(0.62, 0.02, Verdict::Better);
    let same = comparison(1.001, 0.01, Verdict::Equivalent);
    let open = comparison(1.03, 0.06, Verdict::Undecided { rounds_needed: 7 });
    let reason = "noise".to_owned();
    let distrusted = comparison(0.5, 0.1, Verdict::NotTrusted { reason });
    let changes = "memory -38 % [-39 %, -37 %], CPU within \u{b1}1.1 %".to_owned();
    assert_eq!(
        told(Some(&less), Some(&same)),
        (SettingEffect::Changes, changes)
    );
    let nothing = "changes nothing: memory within \u{b1}1.1 %, CPU within \u{b1}1.1 %";
    assert_eq!(
        told(Some(&same), Some(&same)),
        (SettingEffect::Nothing, nothing.to_owned())
    );
    let (effect, words) = told(Some(&same), Some(&open));
    assert_eq!(effect, SettingEffect::Undecided);
    assert_eq!(
        words,
        "undecided: memory within \u{b1}1.1 %, CPU undecided within -2.8 % to +9.2 %; needs about 7 more rounds"
    );
    assert_eq!(told(Some(&same), None).0, SettingEffect::Undecided);
    assert_eq!(
        told(Some(&distrusted), Some(&same)).0,
        SettingEffect::NotTrusted
    );
    assert_eq!(
        told(Some(&less), Some(&distrusted)).0,
        SettingEffect::Changes
    );
    let mut blind = open.clone();
    blind.detectable = None;
    assert!(told(Some(&blind), Some(&blind)).1.contains("so few rounds"));
}

#[test]
fn settings_are_named_without_their_allocator() {
    for (allocator, setting) in [
        ("jemalloc:narenas=2,thp=always", "narenas=2,thp=always"),
        ("glibc+trim=30s", "+trim=30s"),
        ("glibc", "glibc"),
    ] {
        assert_eq!(setting_of(allocator), setting);
    }
}

/// Rounds with these true ratios of memory and CPU, and noise of half a percent.
fn candidate(name: &str, role: Role, memory: f64, cpu: f64, seed: u64) -> CandidateRounds {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut jitter = || 1.0 + 0.01 * (random.f64() - 0.5);
    let rounds = (0..14).map(|round| {
        let mut run = RoundMeasures {
            round,
            ..RoundMeasures::default()
        };
        let cpu_time = Measure::of(Operation::Request, Quantity::CpuTime);
        run.set(
            Measure::whole(Quantity::MemoryAfterWork),
            4e7 * memory * jitter(),
        );
        run.set(cpu_time, 2e4 * cpu * jitter());
        run
    });
    let is_setting = name.contains('=');
    CandidateRounds {
        name: name.to_owned(),
        allocator: name.trim_end_matches(" (again)").to_owned(),
        role,
        what_it_changes: if is_setting { "something" } else { "" }.to_owned(),
        rounds: rounds.collect(),
        ..CandidateRounds::default()
    }
}

/// Goal: of planted values the front, the setting without effect and the words are found; without settings there is no
/// such answer.
#[test]
fn planted_settings_are_found() {
    let all = [
        candidate("a", Role::Baseline, 1.0, 1.0, 1),
        candidate("a (again)", Role::BaselineAgain, 1.0, 1.0, 2),
        candidate("a:small=1", Role::Candidate, 0.6, 1.2, 3),
        candidate("a:like=1", Role::Candidate, 0.6005, 1.1995, 4),
        candidate("a:bad=1", Role::Candidate, 1.3, 1.3, 5),
        candidate("a:idle=1", Role::Candidate, 1.0, 1.0, 6),
        candidate("a:fast=1", Role::Candidate, 1.5, 0.8, 7),
    ];
    let found = analyse(&all).settings_front.unwrap();
    let of = |setting: &str| {
        found
            .settings
            .iter()
            .find(|one| one.setting == setting)
            .unwrap()
    };
    assert_eq!(of("idle=1").effect, SettingEffect::Nothing);
    assert_eq!(of("bad=1").effect, SettingEffect::Changes);
    assert!(of("small=1").sentence.starts_with("memory -40 % ["));
    assert!(
        found.sentence.starts_with(
            "Of 5 settings of a 4 change memory or CPU per request, 1 changes nothing."
        )
    );
    let members: Vec<&str> = found.on_front().map(|one| one.setting.as_str()).collect();
    assert!(members.ends_with(&[DEFAULT, "fast=1"]), "{members:?}");
    assert!(!members.contains(&"bad=1") && !members.contains(&"idle=1"));
    if of("small=1").is_on_front && of("like=1").is_on_front {
        assert_eq!(of("small=1").alike, ["like=1"]);
    }
    assert!(
        found
            .default_memory_bytes
            .is_some_and(|bytes| (3.9e7..4.1e7).contains(&bytes))
    );
    assert_eq!(analyse(&all[..2]).settings_front, None);
}
