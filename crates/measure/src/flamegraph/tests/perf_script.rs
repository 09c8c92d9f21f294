use super::*;

const SCRIPT: &str = "\
nginx: worker \n\
\t    55d1 malloc (/usr/lib/libc.so.6)\n\
\t    55d0 bench::pair::h0123456789abcdef (/bin/x)\n\
\t    55cf std::f<int (*)(int)>::g(int) (/bin/a b)\n\
\t    55ce [unknown] (/bin/stripped)\n\
\t    55cd [unknown] (/bin/stripped)\n\n\
nginx: worker \n\
\tffff8000 [unknown] ([kernel.kallsyms])\n\
\t    7f00 [unknown] (//anon)\n\n\
other\n\n\
nothing here\n";

/// Goal: stacks come outermost first below their thread, hashes and places of files are removed,
/// brackets of C++ stay, and lines that are no sample are skipped.
#[test]
fn samples_become_stacks() {
    let mut stacks = Stacks::default();
    assert_eq!(stacks.add_perf_script(SCRIPT, Root::Thread), 2);
    let folded = "nginx: worker;[generated code];[kernel] 1\n\
        nginx: worker;[stripped];std::f<int (*)(int)>::g(int);bench::pair;malloc 1\n";
    assert_eq!(stacks.to_folded(), folded);
}

#[test]
fn a_title_takes_the_place_of_the_thread() {
    let script = "\t    55d1 malloc (/lib/c)\n\t    55cf main (/bin/x)\n\n\
                  \t    55d1 malloc (/lib/c)\n\t    55cf main (/bin/x)\n\n";
    let mut stacks = Stacks::default();
    assert_eq!(stacks.add_perf_script(script, Root::Title("glibc;pair")), 2);
    assert_eq!(stacks.to_folded(), "glibc;pair;main;malloc 2\n");
}
