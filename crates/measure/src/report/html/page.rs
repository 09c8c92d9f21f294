//! The page from top to bottom.

use super::Page;
use super::{
    Look, curves, escape, forest, heap, looks, memory_course, phases, prose, rounds, svg, table,
};
use crate::record::{
    CandidateRounds, ComparisonRecord, LeftOut, Measure, Operation, PoolsEffect, Quantity,
    QuestionVerdict, Role,
};
use crate::report::{cpus_line, deploy, least_confidence, limit_sentences, limits};
use crate::statistics::{Comparison, Direction, InterimAnalyses};
use crate::units::{
    format_bytes, format_confidence, format_count, format_duration_ns, format_percent, format_utc,
};

/// A page that is larger is no pleasure to open. Flame graphs get what the rest leaves.
const PAGE_BYTES_MAX: usize = 1_990_000;

/// The whole file.
#[must_use]
pub fn render(record: &ComparisonRecord) -> String {
    let looks = looks(record);
    let title = format!("millpond compare: {}", record.subject.title);
    let lead = [
        warnings_of_the_end(record),
        reach(record),
        recommendation(record),
        answers(record),
        left_out(record),
        pools_answer(record),
        table::answer(record),
        self_check(record),
        warnings(record),
    ]
    .concat();
    let over_time = memory_course::plot(record, &looks);
    let (of_phases, over_time) = match record.settings.phases {
        Some(_) => (phases::section(record) + &over_time, String::new()),
        None => (String::new(), over_time),
    };
    let before = [
        ("Which setting", phases::settings_front_section(record)),
        ("Memory over the phases", of_phases),
        ("Smallest memory limit", smallest_limits(record)),
        ("The answers in pictures", question_plots(record, &looks)),
        ("What memory pools change", pools_plots(record, &looks)),
        ("Against the earlier record", table::plots(record, &looks)),
        ("Latency", curves::plots(record, &looks)),
        ("Throughput, run by run", throughput_rounds(record, &looks)),
        (
            "Memory",
            svg::plot(record, &looks) + &unpinned(record) + &growth(record) + &over_time,
        ),
        ("The heap", heap::section(record, &looks)),
    ];
    let mut after = [
        ("How to use it", how_to_use(record)),
        ("Every measure", every_measure(record)),
        ("Slices and uninterrupted blocks", table::section(record)),
        ("How to read this", how_to_read(record)),
        ("Where and how it was measured", circumstances(record)),
    ];
    let mut page = Page::new(&title, &head(record), &lead);
    let all = before.iter().chain(&after);
    let mut spent = page.len_with(record) + all.map(|(_, body)| body.len()).sum::<usize>();
    // They say what the table says: of many candidates they are left out.
    let plots = measure_plots(record, &looks);
    if spent + plots.len() <= PAGE_BYTES_MAX {
        spent += plots.len();
        after[1].1 += &plots;
    }
    let flames = heap::flames_section(record, PAGE_BYTES_MAX.saturating_sub(spent));
    let flames = [("Where time and memory went", flames)];
    for (title, body) in before.into_iter().chain(flames).chain(after) {
        page.section(title, body);
    }
    page.finish("results", record)
}

fn head(record: &ComparisonRecord) -> String {
    let settings = &record.settings;
    let mut facts = vec![format!(
        "{} rounds of {} candidates",
        settings.rounds_done,
        record.candidates.len()
    )];
    if settings.connections > 0 {
        facts.push(format!("{} connections", settings.connections));
    }
    if record.duration_ns > 0 {
        facts.push(format_duration_ns(record.duration_ns as f64));
    }
    if record.started_unix_s > 0 {
        facts.push(format_utc(record.started_unix_s));
    }
    format!(
        "<h1>Which allocator, and what do pools change?</h1><p class=\"sub\">{}{}<br>{}</p>",
        escape(&record.subject.title),
        requests_line(record),
        escape(&facts.join(" \u{b7} "))
    )
}

/// The requests for a user's server.
fn requests_line(record: &ComparisonRecord) -> String {
    let requests = record.subject.requests.as_ref();
    requests.map_or_else(String::new, |requests| {
        format!("<br>{}", escape(&requests.to_string()))
    })
}

fn warnings_of_the_end(record: &ComparisonRecord) -> String {
    if !record.interrupted {
        return String::new();
    }
    let (done, planned) = (record.settings.rounds_done, record.settings.rounds_planned);
    format!("<p class=\"warn\">Stopped early: {done} of {planned} rounds.</p>")
}

fn answers(record: &ComparisonRecord) -> String {
    let verdicts = &record.analysis.verdicts;
    let mut text = String::from("<div class=\"cards\">");
    for (question, verdict) in [
        ("Most throughput?", &verdicts.throughput),
        ("Lowest latency?", &verdicts.latency),
        ("Least memory?", &verdicts.memory),
    ] {
        text += &card(question, verdict);
    }
    text + "</div>\n"
}

fn card(question: &str, verdict: &QuestionVerdict) -> String {
    let class = if verdict.trusted {
        "card"
    } else {
        "card untrusted"
    };
    let sentence = verdict
        .sentence
        .split_once(": ")
        .map_or("", |(_, rest)| rest);
    // Records of earlier versions have none.
    let headline = match verdict.headline.as_str() {
        "" if verdict.best.is_empty() => "No answer".to_owned(),
        "" => verdict.best.join(" / "),
        headline => headline.to_owned(),
    };
    format!(
        "<div class=\"{class}\"><h2 class=\"q\">{}</h2><p class=\"a\">{}</p><p>{}</p>{}</div>",
        escape(question),
        prose(&headline),
        prose(&capitalised(sentence)),
        shown_by(verdict)
    )
}

/// The power of the rounds, and the confidence of the intervals.
fn shown_by(verdict: &QuestionVerdict) -> String {
    if verdict.resolution.is_empty() {
        return String::new();
    }
    let mut resolution = verdict.resolution.clone();
    if let Some(least) = least_confidence(&verdict.comparisons) {
        resolution += &format!(" Intervals of {}.", format_confidence(least));
    }
    format!("<p class=\"hint\">{}</p>", prose(&resolution))
}

fn capitalised(text: &str) -> String {
    // Names of candidates keep their spelling: only our own words get a capital.
    let own = ["no ", "all ", "not ", "only ", "nothing "];
    match own.iter().any(|own| text.starts_with(own)) {
        true => crate::units::capitalised(text),
        false => text.to_owned(),
    }
}

/// The role of malloc in the server.
fn reach(record: &ComparisonRecord) -> String {
    let sentences = record.reach_sentences();
    if sentences.is_empty() {
        return String::new();
    }
    let lines: String = sentences
        .iter()
        .map(|sentence| format!("<p>{}</p>", prose(sentence)))
        .collect();
    format!(
        "<div class=\"card wide\"><h2 class=\"q\">What can an allocator change here?</h2>{lines}</div>\n"
    )
}

/// The recommendation, its costs, its reasons, and when not to switch.
fn recommendation(record: &ComparisonRecord) -> String {
    let advice = &record.analysis.recommendation;
    if advice.sentence.is_empty() {
        return String::new();
    }
    let mut text = String::from("<div class=\"card wide\"><h2 class=\"q\">What to use?</h2>");
    text += &format!("<p class=\"a\">{}</p>", prose(&advice.sentence));
    for sentence in [&advice.reason, &advice.caution] {
        if !sentence.is_empty() {
            text += &format!("<p>{}</p>", prose(sentence));
        }
    }
    text + &front(record) + "</div>\n"
}

/// The candidates to choose from, where there is a choice.
fn front(record: &ComparisonRecord) -> String {
    let front = &record.analysis.recommendation.front;
    if front.len() < 2 {
        return String::new();
    }
    let measured = |key: &&(&str, &str)| {
        let mut all = front.iter();
        all.any(|entry| entry.comparisons.contains_key(key.0))
    };
    let all = [
        ("memory", "memory"),
        ("cpu", "CPU per request"),
        ("throughput", "throughput"),
        ("latency", "latency"),
    ];
    let columns: Vec<(&str, &str)> = all.iter().filter(measured).copied().collect();
    let mut rows = String::new();
    for entry in front {
        rows += &format!("<tr><th scope=\"row\">{}</th>", escape(&entry.candidate));
        for (key, _) in &columns {
            let cell = entry.comparisons.get(*key).map_or_else(
                || "1".to_owned(),
                |one| format!("{} {}", one.ratio_text(), one.verdict.label()),
            );
            rows += &format!("<td>{}</td>", prose(&cell));
        }
        rows += "</tr>";
    }
    let names = columns.iter().map(|(_, name)| *name);
    let head: Vec<&str> = std::iter::once("candidate").chain(names).collect();
    table::with_head(
        "To choose from: none is proved as good as another in all of these and better in one",
        &head,
        &rows,
    )
}

/// How memory changes with work, where the phases were long enough to see it.
fn growth(record: &ComparisonRecord) -> String {
    let all = record.analysis.growth.iter();
    list("While work goes on", all.map(|one| one.sentence.as_str()))
}

/// The settings of the recommended candidates.
fn how_to_use(record: &ComparisonRecord) -> String {
    let deployments = deploy::recommended(record);
    let parts = deployments.iter().map(|one| {
        format!(
            "<h3>{}</h3><pre>{}</pre>",
            escape(&one.candidate),
            escape(&one.text())
        )
    });
    parts.collect()
}

fn smallest_limits(record: &ComparisonRecord) -> String {
    let sentences = limit_sentences(record);
    let lines = items(sentences.iter().map(String::as_str));
    match lines.is_empty() {
        true => lines,
        false => format!(
            "<ul>{lines}</ul><p class=\"hint\">As a container's limit counts it: page cache and kernel memory included.</p>"
        ),
    }
}

/// Memory of those that may use all CPUs, where that is another.
fn unpinned(record: &ComparisonRecord) -> String {
    let all = record.analysis.unpinned.iter();
    list("Without pinning", all.map(|one| one.sentence.as_str()))
}

fn items<'a>(sentences: impl Iterator<Item = &'a str>) -> String {
    sentences
        .map(|sentence| format!("<li>{}</li>", prose(sentence)))
        .collect()
}

fn list<'a>(title: &str, sentences: impl Iterator<Item = &'a str>) -> String {
    let lines = items(sentences);
    match lines.is_empty() {
        true => lines,
        false => format!("<h3>{title}</h3><ul>{lines}</ul>"),
    }
}

fn pools_answer(record: &ComparisonRecord) -> String {
    let effects = &record.analysis.pools_effect;
    if effects.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<div class=\"card wide\"><h2 class=\"q\">What do memory pools change?</h2><ul>",
    );
    for effect in effects {
        text += &format!("<li>{}</li>", prose(&effect.sentence));
    }
    text + "</ul></div>\n"
}

fn self_check(record: &ComparisonRecord) -> String {
    let sentence = &record.analysis.self_check;
    if sentence.is_empty() {
        return String::new();
    }
    format!("<p class=\"hint\">{}</p>\n", prose(sentence))
}

fn warnings(record: &ComparisonRecord) -> String {
    if record.analysis.warnings.is_empty() {
        return String::new();
    }
    let mut text =
        String::from("<div class=\"card wide untrusted\"><h2 class=\"q\">Warnings</h2><ul>");
    for warning in &record.analysis.warnings {
        text += &format!("<li>{}</li>", prose(warning));
    }
    text + "</ul></div>\n"
}

/// Candidates that failed, with the cause instead of figures.
fn left_out(record: &ComparisonRecord) -> String {
    if record.left_out.is_empty() {
        return String::new();
    }
    let row = |one: &LeftOut| {
        format!(
            "<tr><th scope=\"row\">{}</th><td class=\"why\">{}</td><td>{}</td>\
             <td class=\"why\">{}</td></tr>",
            escape(&one.candidate),
            escape(&one.cause.label()),
            escape(&one.when.label()),
            prose(&one.sentence)
        )
    };
    let rows: String = record.left_out.iter().map(row).collect();
    let head = ["candidate", "cause", "when", "what is known"];
    table::with_head("Left out: these failed and are not compared", &head, &rows)
}

fn look_of(record: &ComparisonRecord, looks: &[Look], name: &str) -> Look {
    let place = record
        .candidates
        .iter()
        .position(|candidate| candidate.name == name);
    place
        .and_then(|place| looks.get(place))
        .copied()
        .unwrap_or(Look {
            class: "h0",
            hollow: false,
        })
}

fn rows_of<'a>(
    record: &ComparisonRecord,
    looks: &[Look],
    comparisons: &'a [Comparison],
) -> Vec<forest::Row<'a>> {
    comparisons
        .iter()
        .map(|comparison| forest::Row {
            label: comparison.candidate.clone(),
            look: look_of(record, looks, &comparison.candidate),
            comparison,
        })
        .collect()
}

fn baseline_of(comparisons: &[Comparison]) -> &str {
    let first = comparisons.first();
    first.map_or("the baseline", |first| first.baseline.as_str())
}

pub(super) fn forest_of(
    record: &ComparisonRecord,
    looks: &[Look],
    title: &str,
    comparisons: &[Comparison],
    direction: Direction,
) -> String {
    let rows = rows_of(record, looks, comparisons);
    let against = baseline_of(comparisons);
    forest::plot(
        title,
        against,
        &rows,
        direction == Direction::HigherIsBetter,
    )
}

fn question_plots(record: &ComparisonRecord, looks: &[Look]) -> String {
    let verdicts = &record.analysis.verdicts;
    let mut text = String::new();
    for verdict in [&verdicts.throughput, &verdicts.latency, &verdicts.memory] {
        let Some(first) = verdict.measures.first() else {
            continue;
        };
        let labels: Vec<String> = verdict
            .measures
            .iter()
            .map(|measure| measure.label())
            .collect();
        let title = if labels.len() == 1 {
            labels[0].clone()
        } else {
            format!("{} (geometric mean)", labels.join(" and "))
        };
        let direction = first.quantity.direction();
        text += &forest_of(record, looks, &title, &verdict.comparisons, direction);
    }
    text
}

fn pools_plots(record: &ComparisonRecord, looks: &[Look]) -> String {
    let effects = &record.analysis.pools_effect;
    type Pick = fn(&PoolsEffect) -> Option<&Comparison>;
    let picks: [(&str, Pick, bool); 3] = [
        (
            "Throughput with pools",
            |effect| effect.throughput.as_ref(),
            true,
        ),
        (
            "p99 latency with pools",
            |effect| effect.latency.as_ref(),
            false,
        ),
        ("Memory with pools", |effect| effect.memory.as_ref(), false),
    ];
    let mut text = String::new();
    for (title, pick, higher_is_better) in picks {
        let rows: Vec<forest::Row<'_>> = effects
            .iter()
            .filter_map(|effect| {
                let comparison = pick(effect)?;
                let look = look_of(record, looks, &comparison.candidate);
                Some(forest::Row {
                    label: effect.allocator.clone(),
                    look,
                    comparison,
                })
            })
            .collect();
        let against = "the same allocator without pools";
        text += &forest::plot(title, against, &rows, higher_is_better);
    }
    text
}

fn throughput_rounds(record: &ComparisonRecord, looks: &[Look]) -> String {
    Operation::ALL
        .map(|operation| Measure::of(operation, Quantity::Throughput))
        .map(|measure| rounds::plots(record, looks, measure))
        .concat()
}

fn every_measure(record: &ComparisonRecord) -> String {
    if record.analysis.details.is_empty() {
        return String::new();
    }
    table::all_measures(record)
}

/// The same, drawn.
fn measure_plots(record: &ComparisonRecord, looks: &[Look]) -> String {
    let compared = record.analysis.details.iter();
    let plots: String = compared
        .filter(|detail| !detail.comparisons.is_empty())
        .map(|detail| {
            let direction = detail.measure.quantity.direction();
            forest::repeated(
                &detail.measure.label(),
                baseline_of(&detail.comparisons),
                &rows_of(record, looks, &detail.comparisons),
                direction == Direction::HigherIsBetter,
            )
        })
        .collect();
    if plots.is_empty() {
        return String::new();
    }
    format!(
        "<details class=\"desk\"><summary>The same as plots, one per measure</summary>{plots}</details>"
    )
}

fn how_to_read(record: &ComparisonRecord) -> String {
    let baseline = record
        .candidates
        .iter()
        .find(|one| one.role == Role::Baseline);
    let baseline = baseline.map_or("the baseline", |one| one.name.as_str());
    let looks = record.settings.looks.looks();
    format!(
        "<p>Every round runs every candidate once, in random order, each in a fresh process. All \
         ratios are against <b>{}</b> in the same round; the estimate is Hodges-Lehmann's, the \
         interval is the exact signed-rank one of at least {}, the p value an exact sign-flip \
         permutation, corrected for the number of candidates (Holm).{}</p><ul>\
         <li><b>equivalent</b>: the interval of {} lies within the margin: up to {} counts as the \
         same.</li><li><b>better / worse</b>: not that, corrected p \u{2264} {}, and the interval clear \
         of 1, whatever the size. Two candidates differ where their intervals do.</li>\
         <li><b>undecided</b> (?): these rounds cannot tell; the number says about how many more \
         could.</li><li><b>not trusted</b>: something spoiled the numbers; the sentence says \
         what.</li></ul><p>A candidate marked (again) is the baseline run a second time. It has to \
         show no difference; where it does, no difference of that measure is believed. Latency \
         runs from the <i>intended</i> start of each request at the same rate for all, so a stall \
         is not hidden by waiting for it. Memory is compared after the same number of requests: what the \
         processes keep by themselves, each shared page once; mapped files are a row without a verdict. A \
         value marked ~ is scaled: its hardware counter took turns with others.</p>",
        escape(baseline),
        prose(&format_confidence(looks.confidence())),
        shared(looks),
        prose(&format_confidence(looks.equivalence_confidence())),
        prose(&record.settings.margins.to_string()),
        format_p(looks.significance())
    )
}

/// Why the intervals are not of 95 %.
fn shared(looks: InterimAnalyses) -> String {
    if looks.count() == 1 {
        return String::new();
    }
    format!(
        " Up to {} interim analyses were planned, so each may claim {} instead of 5\u{a0}%: \
         the intervals of all of them together hold with 95\u{a0}%.",
        looks.count(),
        prose(&format_percent(looks.significance()))
    )
}

fn format_p(significance: f64) -> String {
    let text = format!("{significance:.4}");
    text.trim_end_matches('0').to_owned()
}

fn circumstances(record: &ComparisonRecord) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push((name.to_owned(), value));
        }
    };
    let subject = &record.subject;
    add("server", subject.command.join(" "));
    add("URL", subject.url.clone().unwrap_or_default());
    add("I/O driver", subject.driver.clone().unwrap_or_default());
    let engine = subject.engine.as_ref();
    add(
        "storage engine",
        engine.map_or_else(String::new, |e| {
            format!("{} {} ({})", e.name, e.version, e.linkage)
        }),
    );
    add(
        "native allocator",
        subject.native_allocator.clone().unwrap_or_default(),
    );
    add("limits", limits(record).join("; "));
    for (name, value) in settings_lines(record) {
        add(name, value);
    }
    add("counters", record.counters.clone());
    for (name, value) in record.environment.lines() {
        add(name, value);
    }
    add(
        "millpond",
        format!(
            "{} {}",
            record.version,
            record.commit.clone().unwrap_or_default()
        ),
    );
    for candidate in &record.candidates {
        add(
            &format!("library of {}", candidate.name),
            library_line(candidate),
        );
        add(
            &format!("command of {}", candidate.name),
            candidate.command.join(" "),
        );
        add(
            &format!("variables of {}", candidate.name),
            candidate.environment.join(" "),
        );
    }
    format!(
        "{}<h3>To repeat it</h3><pre>{}</pre>",
        table::facts("Circumstances", &lines),
        escape(&table::to_repeat(record).join("\n"))
    )
}

fn settings_lines(record: &ComparisonRecord) -> Vec<(&'static str, String)> {
    let settings = &record.settings;
    let rates: Vec<String> = settings
        .rate_per_s
        .iter()
        .map(|(operation, rate)| format!("{operation} {}", crate::units::format_rate(*rate)))
        .collect();
    let phase = |nanos: u64| {
        if nanos == 0 {
            String::new()
        } else {
            format_duration_ns(nanos as f64)
        }
    };
    let count = |value: u64| {
        if value == 0 {
            String::new()
        } else {
            format_count(value as f64)
        }
    };
    vec![
        (
            "load command",
            settings.load_command.clone().unwrap_or_default(),
        ),
        (
            "its runs to warm up",
            count(u64::from(settings.load_warm_ups)),
        ),
        ("rate of the latency phase", rates.join(", ")),
        ("throughput phase", phase(settings.throughput_phase_ns)),
        ("latency phase", phase(settings.latency_phase_ns)),
        (
            "requests of the memory phase",
            count(settings.memory_requests),
        ),
        (
            "keys",
            settings
                .keys
                .map_or_else(String::new, |keys| format_count(keys as f64)),
        ),
        (
            "value size",
            settings
                .value_bytes
                .map_or_else(String::new, |bytes| format_bytes(bytes as f64)),
        ),
        ("counts as the same", settings.margins.to_string()),
        ("CPUs", cpus_line(record).unwrap_or_default()),
        (
            "candidates lived",
            settings
                .coexistence
                .map_or_else(String::new, |way| way.label().to_owned()),
        ),
        ("seed", settings.seed.to_string()),
    ]
}

fn library_line(candidate: &CandidateRounds) -> String {
    candidate
        .library
        .as_ref()
        .map_or_else(String::new, |library| {
            let version = library.version.clone().unwrap_or_default();
            let hash = library.sha256.as_deref().map_or_else(String::new, |hash| {
                format!(", sha256 {}", hash.get(..16).unwrap_or(hash))
            });
            format!(
                "{} {version}, {}{hash}",
                library.path,
                format_bytes(library.size_bytes as f64)
            )
        })
}
