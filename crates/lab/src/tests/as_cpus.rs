use super::*;
use crate::allocator::{self, Allocator};
use crate::matrix;

fn pair(name: &str, value: &str) -> (OsString, OsString) {
    (name.into(), value.into())
}

fn candidates(allocators: &[Allocator], variants: &[&str]) -> Vec<Candidate> {
    let mut list = matrix::candidates(allocators, &[]);
    let variants: Vec<Variant> = variants
        .iter()
        .map(|text| Variant::parse(text).unwrap())
        .collect();
    matrix::add_variants(&mut list, &variants, false);
    list
}

/// Goal: settings that follow from the number of CPUs are set in every candidate that has such a number, the server in
/// another environment included; names stay, and the baseline is still plain.
#[test]
fn arenas_are_those_of_so_many_cpus() {
    let library = |name| Allocator::preloaded(name, format!("/lib/{name}.so").into());
    let chosen = [
        Allocator::native("glibc"),
        library("jemalloc"),
        library("mimalloc"),
    ];
    let mut list = candidates(&chosen, &["py=env:PYTHONMALLOC=malloc"]);
    let lines = apply(&mut list, 64, &[]);
    let arenas = pair("GLIBC_TUNABLES", "glibc.malloc.arena_max=512");
    let python = pair("PYTHONMALLOC", "malloc");
    let found: Vec<_> = list.iter().map(Candidate::variables).collect();
    assert_eq!(found[0], std::slice::from_ref(&arenas));
    assert_eq!(found[1], found[0]);
    assert_eq!(found[2], [pair("MALLOC_CONF", "narenas:256")]);
    assert_eq!(found[3], []);
    assert_eq!(found[4], [python, arenas]);
    assert!(list[0].is_plain() && list[1].is_plain() && !list[2].is_plain());
    assert_eq!(list[0].name, "glibc");
    assert_eq!(
        lines[0],
        "--as-cpus 64: glibc gets arena_max=512; jemalloc gets narenas=256; py gets arena_max=512"
    );
    assert!(
        lines[1].contains("nothing in mimalloc") && lines[2].contains("TLB"),
        "{lines:?}"
    );
    let mut list = candidates(&chosen, &[]);
    apply(&mut list, 1, &[]);
    assert_eq!(list[2].variables(), [pair("MALLOC_CONF", "narenas:1")]);
}

/// Goal: the user's decisions stay, whether by a setting, by a candidate's variable or by one for all; other settings
/// are kept beside ours.
#[test]
fn what_the_user_decided_stays() {
    let words = ["glibc", "glibc:arena_max=2", "glibc:tcache_count=0"].map(str::to_owned);
    let chosen = allocator::select_with_settings(&words).unwrap();
    let mut list = candidates(&chosen, &["two=env:MALLOC_ARENA_MAX=2"]);
    let lines = apply(&mut list, 64, &[]);
    assert_eq!(
        list[2].variables(),
        [pair("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")]
    );
    let both = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=512";
    assert_eq!(list[3].variables(), [pair("GLIBC_TUNABLES", both)]);
    assert_eq!(list[4].variables(), [pair("MALLOC_ARENA_MAX", "2")]);
    assert!(
        lines[0].contains("glibc:arena_max=2 keeps arena_max=2"),
        "{lines:?}"
    );
    assert!(lines[0].contains("two keeps MALLOC_ARENA_MAX"), "{lines:?}");
    let mut list = candidates(&chosen[..1], &[]);
    let lines = apply(
        &mut list,
        64,
        &[pair("GLIBC_TUNABLES", "glibc.malloc.perturb=1")],
    );
    assert!(lines[0].contains("glibc keeps GLIBC_TUNABLES"), "{lines:?}");
    assert_eq!(list[0].variables(), []);
}
