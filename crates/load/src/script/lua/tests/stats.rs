use super::*;
use mlua::Lua;

fn check(stats: Stats, code: &str) {
    let lua = Lua::new();
    lua.globals().set("s", stats).unwrap();
    lua.load(code).exec().unwrap();
}

fn latencies() -> LatencyHistogram {
    let mut latencies = LatencyHistogram::new();
    for (ns, count) in [(1_000, 2), (2_500, 1), (900, 1)] {
        latencies.record_many(ns, count);
    }
    latencies
}

/// Goal: a script of wrk's walks along the different values and their counts.
#[test]
fn wrk_walks_along_distinct_values() {
    let code = "assert(#s == 3, #s)
             local seen, total = {}, 0
             for i = 1, #s do
                local value, count = s(i)
                seen[i], total = value, total + count
             end
             assert(total == 4 and seen[1] < seen[2] and seen[2] < seen[3])
             local value, count = s(2)
             assert(math.abs(value - 1) < 0.01 and count == 2)
             assert(select(2, s(0)) == 0 and select(2, s(4)) == 0)";
    check(Stats::of_latencies(&latencies(), Length::Distinct), code);
}

/// Goal: a script of wrk2's walks along all values in order.
#[test]
fn wrk2_walks_along_all_values() {
    let code = "assert(#s == 4, #s)
             for i = 2, #s do assert(s[i - 1] <= s[i]) end
             assert(math.abs(s[1] - 0.9) < 0.01 and math.abs(s[4] - 2.5) < 0.01)
             assert(s[2] == s[3] and s[0] == nil and s[5] == nil and s.nothing == nil)";
    check(Stats::of_latencies(&latencies(), Length::Total), code);
}

#[test]
fn figures_are_those_of_the_histogram() {
    let kept = latencies();
    let code = format!(
        "assert(s.min == {} and s.max == {} and s.mean == {} and s.stdev == {})
             assert(s:percentile(50) == {} and s:percentile(99.999) == {})",
        kept.min() as f64 / 1e3,
        kept.max() as f64 / 1e3,
        kept.mean() / 1e3,
        kept.stdev() / 1e3,
        kept.percentile(50.0) as f64 / 1e3,
        kept.percentile(99.999) as f64 / 1e3,
    );
    check(Stats::of_latencies(&kept, Length::Distinct), &code);
}

#[test]
fn rates_have_no_unit_and_may_be_missing() {
    let mut rates = LatencyHistogram::new();
    let code = "assert(#s == 0 and s:percentile(50) == 0 and s.mean == 0)";
    check(Stats::of_rates(&rates, Length::Distinct), code);
    [20, 10, 10].iter().for_each(|&rate| rates.record(rate));
    let code = "assert(#s == 2 and s(1) == 10 and s.max == 20 and s:percentile(50) == 10)
                    assert(select(2, s(1)) == 2)";
    check(Stats::of_rates(&rates, Length::Distinct), code);
}
