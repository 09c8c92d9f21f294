//! Whether a run's figures can be relied on, by the run itself.
//!
//! A generator that was late, busy or stalled still prints a healthy-looking p99; so each run says
//! OK, SUSPECT (usable with care) or INVALID (something else was measured) and why. A slow target
//! measured well is OK.
use crate::cookies::{COOKIE_BYTES_MAX, COOKIES_MAX};
use crate::record::{Ended, LoadRecord};
use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{LoadConnectionSets, LoadStatus, LoadVerdict};
use millpond_measure::slo::SloFacts;
use millpond_measure::units::format_duration_ns;

/// Share of one CPU above which a generator thread may be what limits the rate.
pub(crate) const CPU_SHARE_MAX: f64 = 0.85;
/// Share of the offered requests that may leave after the window.
const MISSED_SHARE_MAX: f64 = 0.005;
/// Above this, the offered rate was not the one measured at all.
const MISSED_SHARE_INVALID: f64 = 0.05;
/// Share of failures up to which no percentile but those of the last thousandth can be another: a note says them.
const ERROR_SHARE_NOTED: f64 = 0.001;
/// Share of failures above which the right responses are a selection.
pub(crate) const ERROR_SHARE_INVALID: f64 = 0.05;
/// Share of the machine's time withheld by the hypervisor.
const STEAL_SHARE_MAX: f64 = 0.02;
/// Above this, the machine was not there to be measured.
pub(crate) const STEAL_SHARE_INVALID: f64 = 0.10;

/// The objectives' requirements on a record.
#[must_use]
pub fn facts_of(record: &LoadRecord) -> SloFacts<'_> {
    SloFacts {
        response: &record.response,
        service: &record.service,
        slip: &record.slip,
        unanswered: &record.unanswered,
        failed: record.errors.total() + record.shed + record.abandoned,
        requests_per_s: record.requests_per_s,
    }
}

/// Stamped responses without which wake delay is not judged.
const WAKES_MIN: u64 = 100;

/// Judges a finished record.
pub(crate) fn judge(record: &LoadRecord) -> LoadVerdict {
    let mut verdict = LoadVerdict::default();
    judge_end(record, &mut verdict);
    judge_errors(record, &mut verdict);
    if record.rate_per_s.is_some() {
        judge_pacing(record, &mut verdict);
    }
    judge_wake(record, &mut verdict);
    judge_cookies(record, &mut verdict);
    judge_warm_up(record, &mut verdict);
    judge_connections(record, &mut verdict);
    judge_machine(record, &mut verdict);
    verdict.notes = record
        .connection_sets
        .iter()
        .filter_map(LoadConnectionSets::note)
        .chain(busy_thread(record).filter(|_| record.rate_per_s.is_some()))
        .chain(note_errors(record))
        .chain(note_unasked(record))
        .chain(note_outages(record))
        .chain(note_blocked(record))
        .collect();
    verdict
}

fn note(verdict: &mut LoadVerdict, status: LoadStatus, reason: String) {
    verdict.status = verdict.status.max(status);
    verdict.reasons.push(reason);
}

/// SUSPECT, or INVALID beyond the second limit.
fn graded(share: f64, invalid_above: f64) -> LoadStatus {
    if share > invalid_above {
        LoadStatus::Invalid
    } else {
        LoadStatus::Suspect
    }
}

fn judge_end(record: &LoadRecord, verdict: &mut LoadVerdict) {
    match record.ended {
        Ended::Complete => {}
        Ended::Interrupted => {
            note(
                verdict,
                LoadStatus::Suspect,
                "interrupted: these are partial results".into(),
            );
        }
        Ended::Aborted => {
            let reason = record.aborted.clone().unwrap_or_default();
            note(
                verdict,
                LoadStatus::Suspect,
                format!("aborted, as asked ({reason}): these are partial results"),
            );
        }
        Ended::TargetGone => note(
            verdict,
            LoadStatus::Invalid,
            "the target stopped accepting connections; the run was ended early".into(),
        ),
    }
    if record.stuck_threads > 0 {
        let reason = format!(
            "the script did not come back in {} of {} threads: what they measured in their last \
             second is missing",
            record.stuck_threads, record.threads
        );
        note(verdict, LoadStatus::Suspect, reason);
    }
    if record.requests == 0 {
        note(
            verdict,
            LoadStatus::Invalid,
            match record.why_none_is_right() {
                None => "no request succeeded".into(),
                Some(why) => format!("no request succeeded; {why}"),
            },
        );
    }
}

fn judge_errors(record: &LoadRecord, verdict: &mut LoadVerdict) {
    if let Some(reason) = failures_in_words(record)
        && error_share(record) > ERROR_SHARE_NOTED
    {
        let status = graded(error_share(record), ERROR_SHARE_INVALID);
        note(verdict, status, reason);
    }
}

/// Notes that do not make a run suspect are still reported.
fn note_errors(record: &LoadRecord) -> Option<String> {
    failures_in_words(record).filter(|_| error_share(record) <= ERROR_SHARE_NOTED)
}

fn note_unasked(record: &LoadRecord) -> Option<String> {
    (record.unasked > 0).then(|| {
        format!(
            "{} connections were closed because bytes came that no request had asked for, as of a second response or \
             behind one",
            record.unasked
        )
    })
}

fn note_outages(record: &LoadRecord) -> Option<String> {
    let outages = &record.outages;
    let whole_ns: u64 = outages.iter().map(|one| one.duration_ns).sum();
    (!outages.is_empty()).then(|| {
        format!(
            "the target was away {} times, {} together; requests that failed then are among the failures",
            outages.len(),
            format_duration_ns(whole_ns as f64)
        )
    })
}

fn error_share(record: &LoadRecord) -> f64 {
    let failed = record.errors.total();
    failed as f64 / (record.requests + failed).max(1) as f64
}

fn failures_in_words(record: &LoadRecord) -> Option<String> {
    let failed = record.errors.total();
    if failed == 0 {
        return None;
    }
    let share = error_share(record);
    let mut reason = format!(
        "{failed} failures ({:.2} %); response and service time are those of the right responses",
        share * 100.0
    );
    if !record.connect_failure.is_empty() {
        reason += &format!(
            "; connecting failed last because: {}",
            record.connect_failure
        );
    }
    Some(reason)
}

fn judge_pacing(record: &LoadRecord, verdict: &mut LoadVerdict) {
    judge_lateness(record, verdict);
    judge_missed_rate(record, verdict);
    judge_shed(record, verdict);
}

/// Requests without which a median is not judged.
const MEDIAN_REQUESTS_MIN: u64 = 20;
/// Requests without which a 99th percentile is not judged: ten lie beyond it.
const P99_REQUESTS_MIN: u64 = 1_000;

/// How much of response time is the generator's own lateness. Of few requests a percentile is one request, which every
/// machine delays now and then.
fn judge_lateness(record: &LoadRecord, verdict: &mut LoadVerdict) {
    let (response, lateness) = (&record.response, &record.lateness);
    let time = |value_ns: u64| format_duration_ns(value_ns as f64);
    let [response_p50, response_p99] = [50.0, 99.0].map(|percent| response.percentile(percent));
    let [lateness_p50, lateness_p99] = [50.0, 99.0].map(|percent| lateness.percentile(percent));
    if response.count() < MEDIAN_REQUESTS_MIN {
        return;
    }
    if lateness_p50 > response_p50 / 2 {
        let reason = format!(
            "the generator sent late: its median lateness {} is most of the median response {}",
            time(lateness_p50),
            time(response_p50)
        );
        note(verdict, LoadStatus::Invalid, reason);
    } else if lateness_p50 > response_p50 / 4 {
        let reason = format!(
            "the generator sent late: its median lateness {} is more than a quarter of the median response {}; give \
             it a CPU of its own",
            time(lateness_p50),
            time(response_p50)
        );
        note(verdict, LoadStatus::Suspect, reason);
    } else if lateness_p99 > response_p99 / 2 && response.count() >= P99_REQUESTS_MIN {
        let reason = format!(
            "the generator sent late: p99 of its lateness {} is most of p99 of response {}; give it a CPU of its own",
            time(lateness_p99),
            time(response_p99)
        );
        note(verdict, LoadStatus::Suspect, reason);
    }
}

/// Waiting for a free connection is in the response times, as the note says, so the figures are right; but a target
/// with more connections may respond sooner.
fn note_blocked(record: &LoadRecord) -> Option<String> {
    let blocked_p99 = record.blocked.percentile(99.0);
    let response_p50 = record.response.percentile(50.0);
    (record.response.count() >= P99_REQUESTS_MIN && blocked_p99 > response_p50).then(|| {
        format!(
            "requests waited for a free connection: p99 of the wait {} is above the median response {}, which \
             includes it",
            format_duration_ns(blocked_p99 as f64),
            format_duration_ns(response_p50 as f64)
        )
    })
}

/// Most of service time spent in this machine's own queue is not the target's, in a closed loop as at a rate.
fn judge_wake(record: &LoadRecord, verdict: &mut LoadVerdict) {
    let (delay, kernel) = (&record.wake_delay, &record.kernel_service);
    if delay.count() < WAKES_MIN {
        return;
    }
    let (medians, means) = (
        [delay, kernel].map(|clock| clock.percentile(50.0) as f64),
        [delay, kernel].map(LatencyHistogram::mean),
    );
    let figures = [("median", medians), ("mean", means)];
    let worse = figures
        .into_iter()
        .find(|(_, [own, outside])| own > outside);
    if let Some((figure, [own_ns, outside_ns])) = worse {
        let reason = format!(
            "the generator read late: responses lay in the kernel for {} ({figure}, of a sample of {}) before it woke, \
             longer than the {} that they took to come; see the kernel's service time, use fewer connections per \
             thread, or --busy-poll",
            format_duration_ns(own_ns),
            delay.count(),
            format_duration_ns(outside_ns)
        );
        note(verdict, LoadStatus::Suspect, reason);
    }
}

/// Requests dropped unsent have no latency, so the latencies are of a selection.
fn judge_shed(record: &LoadRecord, verdict: &mut LoadVerdict) {
    let Some(offered) = record.offered.filter(|_| record.shed > 0) else {
        return;
    };
    let share = record.shed as f64 / offered as f64;
    let reason = format!(
        "{} of {offered} requests ({:.1} %) were later than the deadline and dropped; latencies are \
         those of the others",
        record.shed,
        share * 100.0
    );
    note(verdict, graded(share, MISSED_SHARE_INVALID), reason);
}

fn judge_missed_rate(record: &LoadRecord, verdict: &mut LoadVerdict) {
    let Some(offered) = record.offered.filter(|&offered| offered > 0) else {
        return;
    };
    // An interrupted run leaves requests under way; that is not the target's doing. Requests that an outage kept from
    // being sent have failed, as the failures say.
    let unsent = match record.outages.is_empty() {
        true => record.unsent,
        false => 0,
    };
    let missed = record.sent_late + unsent;
    let share = missed as f64 / offered as f64;
    if share > MISSED_SHARE_MAX {
        let reason = format!(
            "the rate was missed: {missed} of {offered} requests ({:.1} %) could not be sent inside \
             the window; offer less or use more connections",
            share * 100.0
        );
        note(verdict, graded(share, MISSED_SHARE_INVALID), reason);
    }
}

/// A server that misses its cookies gets other requests than intended.
fn judge_cookies(record: &LoadRecord, verdict: &mut LoadVerdict) {
    let Some(cookies) = record.cookies.filter(|cookies| cookies.overflowed > 0) else {
        return;
    };
    let reason = format!(
        "{} cookies found no room: a user keeps {COOKIES_MAX} of {COOKIE_BYTES_MAX} bytes together",
        cookies.overflowed
    );
    note(verdict, LoadStatus::Suspect, reason);
}

/// A target that still changes when counting begins has no single rate and latency.
fn judge_warm_up(record: &LoadRecord, verdict: &mut LoadVerdict) {
    let Some(warm_up) = record.warm_up else {
        return;
    };
    if warm_up.until_steady.is_none_or(|one| one.became_steady) {
        return;
    }
    let reason = format!(
        "the warm-up was not steady after {}: rate or median response still changed, or too few \
         responses came to tell; allow it more time",
        format_duration_ns(warm_up.duration_ns as f64)
    );
    note(verdict, LoadStatus::Suspect, reason);
}

/// Fewer connections than requested are another measurement.
fn judge_connections(record: &LoadRecord, verdict: &mut LoadVerdict) {
    let Some(open) = record
        .connections_open
        .filter(|_| record.started_unix_ns > 0)
    else {
        return;
    };
    let advice = "ask for fewer, give them more time (--connect-within), or look at the limits of the server \
                  and of the ports between both (--source)";
    let asked = record.connections as u64;
    let has_ramp = open.due_at_start < asked;
    let reason = if open.at_start < open.due_at_start {
        format!(
            "only {} of {} connections were open when sending began; {advice}",
            open.at_start, open.due_at_start
        )
    } else if has_ramp && open.at_end < asked && record.errors.connect > 0 {
        format!(
            "only {} of {asked} connections of the ramp were open at the end; {advice}",
            open.at_end
        )
    } else {
        return;
    };
    note(verdict, LoadStatus::Invalid, reason);
}

/// In a closed loop the rate is what such a thread can do. At a rate, a thread that spins until the next request is due
/// is as busy; what it could not do in time is judged by lateness and by the missed rate, so there it is a note.
fn busy_thread(record: &LoadRecord) -> Option<String> {
    (record.generator_cpu_share > CPU_SHARE_MAX).then(|| {
        format!(
            "a generator thread used {:.0} % of its CPU: it may be what limits the rate; use more \
             threads or CPUs",
            record.generator_cpu_share * 100.0
        )
    })
}

fn judge_machine(record: &LoadRecord, verdict: &mut LoadVerdict) {
    if record.rate_per_s.is_none()
        && let Some(reason) = busy_thread(record)
    {
        note(verdict, LoadStatus::Suspect, reason);
    }
    if let Some(share) = record.steal_share.filter(|&share| share > STEAL_SHARE_MAX) {
        let reason = format!(
            "the hypervisor withheld {:.1} % of the CPU time: repeat on a quieter machine",
            share * 100.0
        );
        note(verdict, graded(share, STEAL_SHARE_INVALID), reason);
    }
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod tests;
