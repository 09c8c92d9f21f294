use super::*;

/// Goal: formats are named as their programs are, each to the terminal or to a file.
#[test]
fn outputs_are_read() {
    let wrk2 = Print::parse("wrk2").unwrap();
    assert_eq!((wrk2.format, wrk2.file.is_none()), (Format::Wrk2, true));
    let hgrm = Print::parse("hgrm=out.hgrm").unwrap();
    assert_eq!((hgrm.format, hgrm.file.is_some()), (Format::Hgrm, true));
    let ndjson = Print::parse("ndjson").unwrap();
    assert_eq!(ndjson.format, Format::Stream(Form::Ndjson));
    assert!(wrk2.is_for_people() && !hgrm.is_for_people());
    for text in ["", "xml", "csv=", "csv=/nowhere/at/all.csv", "wrk2="] {
        assert!(Print::parse(text).is_err(), "{text}");
    }
}

/// Goal: wrk2's own flag brings wrk2's format, and --json is one more output.
#[test]
fn defaults_follow_the_flags() {
    let flags = |print: &[&str], uncorrected, json: Option<&str>| PrintFlags {
        histogram: false,
        print: print.iter().map(|one| Print::parse(one).unwrap()).collect(),
        latency: false,
        uncorrected,
        json: json.map(|file| JsonFile::parse(file).unwrap()),
        percentages: None,
        gnuplot: None,
        report: None,
        has_rate: false,
        ab_style: ab::Style::default(),
    };
    let formats = |flags: &PrintFlags| -> Vec<Format> {
        flags.outputs().iter().map(|one| one.format).collect()
    };
    assert_eq!(formats(&flags(&[], false, None)), [Format::Wrk]);
    assert_eq!(formats(&flags(&[], true, None)), [Format::Wrk2]);
    // wrk2 is run with a rate, and wrk without.
    let mut spectrum = flags(&[], false, None);
    spectrum.latency = true;
    assert_eq!(formats(&spectrum), [Format::Wrk]);
    spectrum.set_up(true, ab::Style::default());
    assert_eq!(formats(&spectrum), [Format::Wrk2]);
    assert_eq!(spectrum.tool(), None);
    assert_eq!(flags(&["wrk2"], false, None).tool(), Some(Tool::Wrk));
    assert_eq!(flags(&["json", "ab"], false, None).tool(), Some(Tool::Ab));
    // A dash is stdout, where wrk's text would make it unreadable.
    let shown = flags(&[], false, Some("-"));
    assert_eq!(shown.outputs(), [Print::parse("json").unwrap()]);
    assert!(!shown.has_header());
    let both = flags(&["csv"], false, Some("run.json"));
    assert_eq!(formats(&both), [Format::Csv, Format::Json]);
    assert!(!both.has_header());
    assert!(flags(&[], false, Some("run.json")).has_header());
    assert!(!flags(&["json=a", "wrk"], false, None).has_header());
}
