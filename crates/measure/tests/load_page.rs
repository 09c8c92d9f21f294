//! The page of a load run: whole, readable by itself, and made of what was measured.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{
    LoadErrors, LoadReport, LoadSecond, LoadStatus, LoadVerdict, RunPart,
};
use millpond_measure::report::html::{LoadPage, render_load};

const SECOND_NS: u64 = 1_000_000_000;

fn samples(step_ns: u64) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    (1..=5_000_u64).for_each(|step| histogram.record(step * step_ns));
    histogram
}

fn second(index: u64, part: RunPart) -> LoadSecond {
    let clock = samples(1_000 + index % 7).summary();
    LoadSecond {
        part,
        second: index,
        start_ns: index * SECOND_NS,
        duration_ns: SECOND_NS,
        requests: 5_000,
        requests_per_s: 5_000.0,
        response_ns: clock,
        service_ns: clock,
        slip_ns: clock,
        errors: LoadErrors {
            timeout: u64::from(index == 3),
            ..LoadErrors::default()
        },
        ..LoadSecond::default()
    }
}

fn page(report: &LoadReport, slip: &LatencyHistogram, seconds: &[LoadSecond]) -> String {
    let response = samples(1_000);
    render_load(&LoadPage {
        report,
        response: &response,
        service: &response,
        slip,
        seconds,
    })
}

fn report() -> LoadReport {
    LoadReport {
        url: "http://h/?a=<b>&c".to_owned(),
        requests: 5_000,
        response_ns: samples(1_000).summary(),
        verdict: LoadVerdict {
            status: LoadStatus::Suspect,
            reasons: vec!["the <generator> was late".to_owned()],
            notes: Vec::new(),
        },
        ..LoadReport::default()
    }
}

/// Goal: verdict, percentiles, course and failures are there, nothing is fetched, nothing that came
/// from outside becomes markup, and the record is in the page.
#[test]
fn the_page_is_whole() {
    let mut seconds = vec![second(0, RunPart::WarmUp)];
    seconds.extend((1..6).map(|index| second(index, RunPart::Window)));
    let text = page(&report(), &samples(10), &seconds);
    for part in [
        "Verdict: SUSPECT",
        "the &lt;generator&gt; was late",
        "http://h/?a=&lt;b&gt;&amp;c",
        "Time over percentile",
        "99.9 %",
        ">send delay</text>",
        "Right responses per second",
        ">warm-up</text>",
        "Failed or dropped",
        "</html>",
    ] {
        assert!(text.contains(part), "{part}");
    }
    for part in [
        "<b>",
        "<generator>",
        "src=",
        "href=\"h",
        "@import",
        "NaN",
        "inf\"",
    ] {
        assert!(!text.contains(part), "{part}");
    }
    let (_, json) = text.split_once("id=\"record\">").unwrap();
    let (json, _) = json.split_once("</script>").unwrap();
    let again: LoadReport = serde_json::from_str(json).unwrap();
    assert_eq!(again, report());
}

/// Goal: empty parts are not drawn: a closed loop has no send delay, a merged record no course, an empty run no curve.
#[test]
fn nothing_is_made_up() {
    let text = page(&report(), &LatencyHistogram::new(), &[]);
    assert!(text.contains("response = service") && !text.contains(">send delay</text>"));
    assert!(!text.contains("The course of the run"));
    assert!(text.contains("Nothing did."));
    let empty = LatencyHistogram::new();
    let text = render_load(&LoadPage {
        report: &LoadReport::default(),
        response: &empty,
        service: &empty,
        slip: &empty,
        seconds: &[],
    });
    assert!(!text.contains("<svg") && text.contains("</html>"));
}

/// Goal: a day's seconds fit into a page that opens.
#[test]
fn long_runs_stay_small() {
    let one = second(1, RunPart::Window);
    let seconds: Vec<LoadSecond> = (0..86_400)
        .map(|index| LoadSecond {
            start_ns: index * SECOND_NS,
            ..one.clone()
        })
        .collect();
    let text = page(&report(), &samples(10), &seconds);
    assert!(text.len() < 300 * 1024, "{}", text.len());
}
