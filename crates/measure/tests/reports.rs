//! The outputs for people and programs: the JSON contract, the terminal's width, the self-contained
//! page.

mod synthetic;

use millpond_measure::histogram::LatencySummary;
use millpond_measure::record::{
    ComparisonRecord, FORMAT_VERSION, FailureCause, LeftOut, LeftOutWhen, LoadReport, Measure,
    NoiseFlag, NoiseKind, PoolSetting, Quantity,
};
use millpond_measure::report::{html, terminal};
use synthetic::{Plan, nine_plans, record};

fn sample() -> ComparisonRecord {
    record(&nine_plans(), 10, 0.03, 7)
}

/// Goal: the names that other tools rely on (DESIGN.md, section 1) are in results.json, and the
/// file reads back to the same record.
#[test]
fn results_json_keeps_its_contract() {
    let record = sample();
    let text = record.to_json().unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["format_version"], FORMAT_VERSION);
    for candidate in json["candidates"].as_array().unwrap() {
        assert!(candidate["name"].is_string());
        assert!(["on", "off"].contains(&candidate["pools"].as_str().unwrap()));
        for round in candidate["rounds"].as_array().unwrap() {
            assert_eq!(round["status"], "done");
            assert!(round["measures"]["put.throughput_per_s"].as_f64().unwrap() > 0.0);
            assert!(round["measures"]["rss_after_work_bytes"].as_f64().unwrap() > 0.0);
        }
    }
    for question in ["throughput", "latency", "memory"] {
        let verdict = &json["verdicts"][question];
        assert!(
            verdict["best"]
                .as_array()
                .unwrap()
                .iter()
                .all(serde_json::Value::is_string)
        );
        let comparisons = verdict["comparisons"].as_array().unwrap();
        assert_eq!(comparisons.len(), 8);
        for comparison in comparisons {
            for key in ["ratio", "low", "high", "p"] {
                assert!(comparison[key].is_number(), "{question} {key}");
            }
            for key in ["candidate", "baseline", "verdict", "sentence"] {
                assert!(comparison[key].is_string(), "{question} {key}");
            }
            let words = ["better", "worse", "equivalent", "undecided", "not_trusted"];
            assert!(words.contains(&comparison["verdict"].as_str().unwrap()));
        }
    }
    let back: ComparisonRecord = serde_json::from_str(&text).unwrap();
    assert!(
        back.to_json().unwrap() == text,
        "the text differs after reading and writing"
    );
    assert!(
        back == record,
        "the record differs after writing and reading"
    );
}

/// Goal: a record of a later version, with unknown fields and measures, still opens, and its rounds
/// give the same verdicts.
#[test]
fn a_later_version_opens() {
    let record = sample();
    let mut json = serde_json::to_value(&record).unwrap();
    json["format_version"] = 99.into();
    json["moon_phase"] = "full".into();
    json["candidates"][0]["rounds"][0]["measures"]["put.happiness_per_s"] = 5.into();
    json["candidates"][0]["rounds"][0]["colour"] = "blue".into();
    let mut back: ComparisonRecord = serde_json::from_value(json).unwrap();
    assert_eq!(back.format_version, 99);
    back.analyse();
    assert!(
        back.analysis.verdicts == record.analysis.verdicts,
        "the verdicts differ"
    );
}

/// Goal: the JSON of `load` has every name of the contract, with the percentiles under each clock.
#[test]
fn load_json_keeps_its_contract() {
    let json = serde_json::to_value(LoadReport::default()).unwrap();
    for key in ["requests", "errors", "duration_ns", "requests_per_s"] {
        assert!(!json[key].is_null(), "{key}");
    }
    for clock in ["response_ns", "service_ns", "slip_ns"] {
        for figure in ["min", "mean", "stdev", "p50", "p90", "p99", "p999", "max"] {
            assert!(json[clock][figure].is_u64(), "{clock}.{figure}");
        }
    }
    for phase in ["connect", "read", "write", "timeout", "status"] {
        assert_eq!(json["errors"][phase], 0);
    }
    assert_eq!(json["verdict"]["status"], "OK");
    assert!(json["verdict"]["reasons"].is_array());
}

/// Goal: what to use and the three answers first, nothing wider than requested, all candidates in the table, no colour
/// unless requested.
#[test]
fn terminal_text_answers_first_and_fits() {
    let mut record = sample();
    record
        .analysis
        .warnings
        .push("something long that has to be broken ".repeat(6));
    for width in [80, 100] {
        let options = terminal::TerminalOptions {
            width,
            ..Default::default()
        };
        let text = terminal::render(&record, &options);
        assert!(text.starts_with("For throughput"), "{text}");
        let (_, answers) = text.split_once("\n\n").unwrap();
        let starts: Vec<&str> = answers
            .lines()
            .filter(|line| !line.starts_with(' '))
            .take(3)
            .collect();
        assert!(starts[0].starts_with("Throughput: "), "{text}");
        assert!(starts[1].starts_with("Latency: "), "{text}");
        assert!(starts[2].starts_with("Memory: "), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line:?}");
        }
        for candidate in &record.candidates {
            let row = |line: &&str| line.starts_with(&candidate.name);
            assert!(text.lines().any(|line| row(&line)), "{}", candidate.name);
        }
        assert!(!text.contains('\x1b'));
    }
    let coloured = terminal::TerminalOptions {
        colour: true,
        ..Default::default()
    };
    assert!(terminal::render(&record, &coloured).contains("\x1b[38;5;28m"));
    // An empty record (Ctrl-C before the first run ended) prints too.
    let empty = terminal::render(
        &ComparisonRecord::new("0"),
        &terminal::TerminalOptions::default(),
    );
    assert!(empty.contains("0 rounds of 0 candidates"), "{empty}");
}

/// Goal: memory after the work, and what is left of it after idle, stand in the printed table, under every candidate;
/// of an old record it is RSS. Unjudged measures have a row in the page and no verdict.
#[test]
fn memory_is_in_the_tables() {
    let mut record = sample();
    // The second heading lines of every printed table.
    let heads = |record: &ComparisonRecord| -> Vec<String> {
        let text = terminal::render(record, &terminal::TerminalOptions::default());
        let lines = text.lines().filter(|line| line.starts_with("candidate "));
        let words = lines.flat_map(str::split_whitespace).map(str::to_owned);
        words.filter(|word| word != "candidate").collect()
    };
    let has = |record: &ComparisonRecord, head: &str| heads(record).iter().any(|one| one == head);
    assert!(has(&record, "memory") && has(&record, "idle"));
    let mut long = record.clone();
    for candidate in &mut long.candidates {
        candidate.name += " and with a setting that has a long name";
    }
    long.analyse();
    assert!(has(&long, "memory") && has(&long, "idle"));
    let page = html::render(&record);
    assert!(page.contains("<figcaption>Memory over time"));
    assert!(page.contains("memory after idle</th>"));
    let (_, row) = page.split_once(">file-backed</th>").unwrap();
    let (row, _) = row.split_once("</tr>").unwrap();
    assert!(row.contains("MiB") && !row.contains("class=\"v-"), "{row}");
    for round in record.candidates.iter_mut().flat_map(|one| &mut one.rounds) {
        let old = Measure::whole;
        for quantity in [
            Quantity::MemoryAfterWork,
            Quantity::MemoryAfterIdle,
            Quantity::PeakMemory,
        ] {
            round.measures.remove(&old(quantity));
        }
        let rss = round.get(old(Quantity::RssAfterWork)).unwrap();
        round.set(old(Quantity::RssAfterIdle), rss);
        round.memory_course.as_mut().unwrap().memory_bytes.clear();
    }
    record.analyse();
    assert!(has(&record, "RSS") && has(&record, "idle") && !has(&record, "memory"));
    let page = html::render(&record);
    for caption in ["Resident memory over time", "Resident memory <span"] {
        assert!(
            page.contains(&format!("<figcaption>{caption}")),
            "{caption}"
        );
    }
}

/// Goal: a candidate that failed is a row of the table on a terminal and on the page, with its cause instead of
/// figures and what is known of it; a record without such a one does not mention any.
#[test]
fn a_candidate_that_failed_is_a_row() {
    let mut record = sample();
    let options = terminal::TerminalOptions::default();
    assert!(!terminal::render(&record, &options).contains("Left out"));
    assert!(!html::render(&record).contains("Left out"));
    record.left_out.push(LeftOut {
        candidate: "broken".to_owned(),
        cause: FailureCause::Crashed {
            signal: Some(11),
            exit_status: None,
            last_lines: vec!["free(): <invalid> pointer".to_owned()],
        },
        sentence: "server died; its last words were: free(): <invalid> pointer".to_owned(),
        when: LeftOutWhen::Round(2),
        rounds_done: 1,
    });
    let text = terminal::render(&record, &options);
    let row = text.lines().find(|line| line.starts_with("broken "));
    let cause = row.map(|row| row.trim_start_matches("broken").trim());
    assert_eq!(cause, Some("crashed (SIGSEGV) in round 2"), "{text}");
    let sentence = "- broken, crashed (SIGSEGV) in round 2: server died; its last words";
    assert!(text.contains(sentence), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let page = html::render(&record);
    for part in [
        "broken</th>",
        "crashed (SIGSEGV)</td>",
        "in round 2</td>",
        "&lt;invalid&gt;",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// Goal: the page fetches nothing and runs nothing, holds the record whole, and shows every
/// candidate; its tags are balanced.
#[test]
fn html_stands_alone() {
    let record = sample();
    let page = html::render(&record);
    assert!(page.contains("default-src 'none'"));
    for forbidden in [
        "src=", "@import", "url(", "<link", "<iframe", "onclick", "onload",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    // Links lead to places in the page, and to such as are there.
    for link in page.split("href=\"").skip(1) {
        let name = link.split('"').next().unwrap();
        let place = name.strip_prefix('#').unwrap_or_else(|| panic!("{name}"));
        assert!(page.contains(&format!("id=\"{place}\"")), "{name}");
    }
    assert_eq!(page.matches("<script").count(), 1, "the data block only");
    for tag in [
        "svg", "figure", "section", "table", "tbody", "tr", "td", "th", "div", "ul", "details",
        "g", "p", "main", "nav", "header", "h1", "h2", "h3", "caption", "title", "desc",
    ] {
        let open =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    let (_, rest) = page.split_once("id=\"results\">").unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    let back: ComparisonRecord = serde_json::from_str(json).unwrap();
    assert!(back == record, "the record inside the page differs");
    for candidate in &record.candidates {
        assert!(page.contains(&candidate.name));
    }
    assert!(
        !page.contains("NaN") && !page.contains(">inf"),
        "no number without a value is drawn"
    );
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let mut plain = record.clone();
    plain.flame_graphs.clear();
    let page = html::render(&plain);
    assert!(page.len() < 3 << 19, "{} bytes", page.len());
}

/// Goal: a hostile name can neither break the page nor the data block.
#[test]
fn html_is_escaped() {
    let mut record = sample();
    let name = "</script><script>alert(1)</script>\"'&";
    record.candidates[3].name = name.to_owned();
    record.subject.title = name.to_owned();
    record.analyse();
    let page = html::render(&record);
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</script>").count(), 1);
    let (_, rest) = page.split_once("id=\"results\">").unwrap();
    let back: ComparisonRecord =
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(back.candidates[3].name, name);
}

/// Goal: half a comparison, a disturbed one, one without any measure still give a page.
#[test]
fn html_of_awkward_records() {
    let mut record = sample();
    record.interrupted = true;
    for candidate in &mut record.candidates {
        candidate.rounds.truncate(1);
        candidate.curves.clear();
        let phase = None;
        candidate.rounds[0].noise.push(NoiseFlag {
            kind: NoiseKind::Steal,
            value: 0.2,
            limit: 0.01,
            phase,
        });
    }
    record.analyse();
    let page = html::render(&record);
    assert!(
        page.contains("Stopped early") && page.contains("No answer"),
        "{}",
        &page[..4000]
    );
    assert!(!page.contains("NaN"));
    let empty = html::render(&ComparisonRecord::new("0"));
    assert!(empty.ends_with("</html>\n") && !empty.contains("NaN"));
}

/// Goal: nineteen candidates in ten rounds, with memory over time, percentiles and the heap of each, make
/// a page of at most 2 MB that draws all of them.
#[test]
fn a_large_page_stays_below_two_megabytes() {
    let mut plans = nine_plans();
    for name in ["snmalloc", "rpmalloc", "scudo", "tbb", "hardened"] {
        let twice = [PoolSetting::On, PoolSetting::Off].map(|pools| Plan::new(name, pools));
        plans.extend(twice);
    }
    let record = record(&plans, 10, 0.03, 7);
    assert_eq!(record.candidates.len(), 19);
    let page = html::render(&record);
    assert!(page.len() <= 2_000_000, "{} bytes", page.len());
    // Flame graphs get what is left, or say that nothing is.
    let has_graphs = page.contains("Bytes asked for of glibc with pools");
    assert!(has_graphs != page.contains("no room left to show them"));
    for part in [
        "Memory over time",
        "Sizes asked for",
        "How long blocks lived",
        "PUT throughput round by round",
        "PUT response time of each run",
        "Where time and memory went",
        "To repeat it",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// Runs of a slow server had no request at the rate: the page showed percentiles from 0 ns on.
///
/// Goal: a run without requests, or with too few for a percentile, has no part in that percentile's range.
#[test]
fn runs_with_too_few_requests_are_in_no_range() {
    let mut record = sample();
    for candidate in &mut record.candidates {
        for (index, round) in candidate.rounds.iter_mut().enumerate() {
            for summary in round.latencies.values_mut() {
                summary.count = 50;
                if index == 0 {
                    *summary = LatencySummary::default();
                }
            }
        }
    }
    let page = html::render(&record);
    let table = page
        .split("<caption>PUT response time of each run")
        .nth(1)
        .unwrap();
    let table = table.split("</table>").next().unwrap();
    assert!(table.contains("<td>-</td>"), "{table}");
    assert!(!table.contains(">0 ns"), "{table}");
    assert!(table.contains("\u{2013}"), "{table}");
}

/// Goal: every drawing is there for a wide page and for a phone, neither wider than its screen, and one of
/// them is shown.
#[test]
fn drawings_have_a_form_for_phones() {
    let page = html::render(&sample());
    let figures: Vec<&str> = page.split("<figure>").skip(1).collect();
    assert!(figures.len() > 20, "{}", figures.len());
    for figure in figures {
        let figure = figure.split("</figure>").next().unwrap();
        let forms: Vec<&str> = figure.split("<svg ").skip(1).collect();
        assert_eq!(forms.len(), 2, "{figure:.200}");
        for (form, class, width) in [(forms[0], "wide", 1020.0), (forms[1], "narrow", 360.0)] {
            assert!(form.contains(&format!("class=\"{class}\"")), "{form:.200}");
            let rights = form.split("<rect ").skip(1).map(|rect| {
                let number = |name: &str| -> f64 {
                    let (_, rest) = rect.split_once(&format!(" {name}=\"")).unwrap();
                    rest.split('"').next().unwrap().parse().unwrap()
                };
                let rect = format!(" {rect}");
                let (_, rest) = rect.split_once(" x=\"").unwrap();
                rest.split('"').next().unwrap().parse::<f64>().unwrap() + number("width")
            });
            for right in rights {
                assert!(right <= width + 0.5, "{right} in {class}: {form:.200}");
            }
        }
        assert!(!figure.contains("class=\"scroll\""), "{figure:.200}");
    }
    let style = include_str!("../src/report/html/style.css");
    assert!(style.contains("svg.narrow { display: none"));
    assert!(style.contains("svg.wide, details.desk { display: none; }"));
}

/// Goal: the page says how sure its intervals are: 95 % after one analysis, more of each if there were to
/// be several.
#[test]
fn the_page_says_how_sure_it_is() {
    let mut record = sample();
    let page = html::render(&record);
    for part in [
        "signed-rank one of at least 95\u{a0}%",
        "corrected p \u{2264} 0.05,",
        "the interval of 90\u{a0}% lies",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("interim analyses were planned"));
    record.settings.looks.planned = vec![10, 18, 32];
    record.analyse();
    let page = html::render(&record);
    for part in [
        "signed-rank one of at least 98.3\u{a0}%",
        "corrected p \u{2264} 0.0167,",
        "the interval of 96.6\u{a0}% lies",
        "Up to 3 interim analyses",
        "find differences of",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // The real levels of each question's intervals, which ranks make a little more.
    let least = record.analysis.verdicts.memory.comparisons.iter();
    let least = least.map(|one| one.confidence).fold(1.0, f64::min);
    assert!(least >= 0.9833, "{least}");
    let said = format!("intervals of {} %", (least * 1_000.0).floor() / 10.0);
    let text = terminal::render(&record, &terminal::TerminalOptions::default());
    let text = text.replace("\n   ", " ");
    assert!(text.contains(&said), "{said}: {text}");
    assert!(page.contains(&said.replace(" %", "\u{a0}%")), "{said}");
}

/// Goal: what changes an allocator beside its name stands in both reports: the machine, the variables of the
/// shell, and of each candidate its version, command and variables. Old records do not have it, and are shown.
#[test]
fn what_candidates_are_is_shown() {
    use millpond_measure::environment::InheritedVariables;
    let mut record = sample();
    let old = terminal::render(&record, &terminal::TerminalOptions::default());
    assert!(
        !old.contains("Candidates: ") && !old.contains("On 2 CPUs"),
        "{old}"
    );
    record.environment.page_bytes = Some(16_384);
    record.environment.c_library = Some("2.36 (Debian)".to_owned());
    record.environment.inherited_variables = Some(InheritedVariables {
        allocator: vec!["MALLOC_ARENA_MAX=1".to_owned()],
        ..InheritedVariables::default()
    });
    record.candidates[2].allocator_version = Some("5.3.0-1 (libjemalloc2)".to_owned());
    record.candidates[3].command = ["./server-musl", "8080"].map(str::to_owned).to_vec();
    record.candidates[4].environment = vec!["PYTHONMALLOC=malloc".to_owned()];
    let parts = [
        "16 KiB",
        "2.36 (Debian)",
        "MALLOC_ARENA_MAX=1 (dropped)",
        "./server-musl 8080",
        "PYTHONMALLOC=malloc",
    ];
    let text = terminal::render(&record, &terminal::TerminalOptions::default());
    let text = text.replace("\n  ", " ");
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
    let named = format!("{}: 5.3.0-1 (libjemalloc2)", record.candidates[2].name);
    assert!(text.contains(&named), "{text}");
    let page = html::render(&record).replace('\u{a0}', " ");
    for part in parts {
        assert!(page.contains(part), "{part}");
    }
}

/// Goal: a value whose hardware counter was shared is marked as one, with what the mark means.
#[test]
fn scaled_values_are_marked() {
    use millpond_measure::record::{Measure, Operation, Quantity};
    let mut record = sample();
    let measure = Measure::of(Operation::Put, Quantity::Throughput);
    for round in &mut record.candidates[0].rounds {
        round.scaled.insert(measure);
    }
    let text = terminal::render(&record, &terminal::TerminalOptions::default());
    assert!(
        text.contains(" ~2") && text.contains("~ is scaled"),
        "{text}"
    );
    let page = html::render(&record);
    assert!(page.contains("<td>~2") && page.contains("marked ~ is scaled"));
}

/// Goal: flame graphs run nothing in the page, are distinguished by candidate and kind, and their functions
/// stand in a table; without any there is no heading.
#[test]
fn flame_graphs_are_part_of_the_page() {
    let mut record = sample();
    let page = html::render(&record);
    for part in [
        "CPU time of glibc with pools",
        "CPU time of mimalloc without pools",
        "CPU time: mimalloc with pools against glibc with pools",
        "Bytes asked for: mimalloc with pools against glibc with pools",
        "CPU time: the functions that took most themselves",
        "<title>invented::store::BlockBasedTable&lt;Reader0&gt;",
        "<g class=\"flame\">",
        "the directory flamegraphs beside this page",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(page.matches("<script").count(), 1, "the data block only");
    record.flame_graphs[0].frames = vec!["what is this".to_owned()];
    assert!(html::render(&record).ends_with("</html>\n"));
    record.flame_graphs.clear();
    assert!(!html::render(&record).contains("Where time and memory went"));
}

/// Goal: the phases of a run stand behind its memory.
#[test]
fn memory_over_time_has_its_phases() {
    let page = html::render(&sample());
    let (_, rest) = page.split_once("<figcaption>Memory over time").unwrap();
    let figure = rest.split("</figure>").next().unwrap();
    assert!(figure.contains("bands: the phases of glibc with pools"));
    for phase in ["put throughput", "idle", "get latency"] {
        assert_eq!(
            figure.matches(&format!(">{phase}</text>")).count(),
            2,
            "{phase}"
        );
    }
}

/// Goal: a screen reader gets through the page: one h1, no level is skipped, every drawing has a title and its numbers,
/// every table a caption and scopes, scrollable parts take the focus.
#[test]
fn html_can_be_walked_without_seeing() {
    let page = html::render(&sample());
    assert_eq!(page.matches("<h1").count(), 1);
    for landmark in ["<header>", "<main>", "<nav aria-label="] {
        assert_eq!(page.matches(landmark).count(), 1, "{landmark}");
    }
    let levels: Vec<u32> = page
        .split("<h")
        .skip(1)
        .filter_map(|rest| rest.chars().next()?.to_digit(10))
        .collect();
    assert!(
        levels.windows(2).all(|two| two[1] <= two[0] + 1),
        "{levels:?}"
    );
    for svg in page.split("<svg ").skip(1) {
        let whole = svg.split("</svg>").next().unwrap();
        assert!(whole.starts_with("role=\"img\" aria-label="), "{whole:.80}");
        if whole.contains("class=\"wide\"") {
            let (_, described) = whole.split_once("<desc>").unwrap();
            assert!(!described.starts_with("</desc>"), "{whole:.120}");
        }
    }
    for table in page.split("<table").skip(1) {
        let whole = table.split("</table>").next().unwrap();
        assert!(whole.contains("<caption>"), "{whole:.80}");
        assert_eq!(
            whole.matches("<th ").count(),
            whole.matches("scope=\"").count()
        );
        assert!(!whole.contains("<th>"), "{whole:.80}");
    }
    for area in page.split("class=\"scroll\"").skip(1) {
        assert!(
            area.starts_with(" role=\"group\" tabindex=\"0\" aria-label="),
            "{area:.60}"
        );
    }
}

/// Goal: text of every colour has enough contrast in both themes (WCAG: 4.5 to 1), drawings too (3 to 1).
#[test]
fn colours_have_contrast() {
    let style = include_str!("../src/report/html/style.css");
    let themes: Vec<&str> = style.split(":root {").skip(1).collect();
    assert!(themes.len() >= 2);
    for theme in themes {
        let theme = theme.split('}').next().unwrap();
        let colour = |name: &str| -> [f64; 3] {
            let (_, rest) = theme.split_once(&format!("--{name}: #")).unwrap();
            [0, 2, 4]
                .map(|at| f64::from(u8::from_str_radix(&rest[at..at + 2], 16).unwrap()) / 255.0)
        };
        let luminance = |name: &str| {
            let linear = colour(name).map(|part| {
                if part <= 0.040_45 {
                    part / 12.92
                } else {
                    ((part + 0.055) / 1.055).powf(2.4)
                }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        let contrast = |one: &str, other: &str| {
            let (one, other) = (luminance(one), luminance(other));
            (one.max(other) + 0.05) / (one.min(other) + 0.05)
        };
        for name in ["fg", "soft", "good", "bad", "warn", "h0"] {
            for ground in ["bg", "card"] {
                assert!(contrast(name, ground) >= 4.5, "{name} on {ground}: {theme}");
            }
        }
        assert!(contrast("fg", "warn-bg") >= 4.5 && contrast("soft", "warn-bg") >= 4.5);
        for name in ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "again"] {
            assert!(contrast(name, "bg") >= 3.0, "{name}: {theme}");
        }
    }
}
