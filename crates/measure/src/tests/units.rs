use super::*;
use proptest::prelude::*;

#[test]
fn durations_are_read_as_wrk_reads_them() {
    assert_eq!(parse_duration_ns("30s"), Ok(30_000_000_000));
    assert_eq!(parse_duration_ns("30"), Ok(30_000_000_000));
    assert_eq!(parse_duration_ns("5m"), Ok(300_000_000_000));
    assert_eq!(parse_duration_ns("2h"), Ok(7_200_000_000_000));
    assert_eq!(parse_duration_ns("1.5ms"), Ok(1_500_000));
    assert_eq!(parse_duration_ns(" 7 us "), Ok(7_000));
    assert_eq!(parse_duration_ns("1m30s"), Ok(90_000_000_000));
    assert_eq!(parse_duration_ns("1h5m2.5s"), Ok(3_902_500_000_000));
    for text in ["1m30", "30s1m", "1m1m", "m30s", "1m 30s x", "1m-3s", ""] {
        assert!(parse_duration_ns(text).is_err(), "{text}");
    }
}

#[test]
fn counts_and_sizes() {
    assert_eq!(parse_count("10k"), Ok(10_000));
    assert_eq!(parse_count("1_000"), Ok(1_000));
    assert_eq!(parse_count("1.5M"), Ok(1_500_000));
    assert_eq!(parse_bytes("64KiB"), Ok(65_536));
    assert_eq!(parse_bytes("1kB"), Ok(1_000));
    assert_eq!(parse_bytes("2G"), Ok(2_147_483_648));
}

/// Goal: a rate of 2.5 is not one of 3: what cannot be done is refused instead of rounded.
#[test]
fn half_a_request_is_none() {
    for text in ["0.4", "0.5", "2.5", "1.0005k"] {
        assert!(parse_count(text).is_err(), "{text}");
    }
    assert_eq!(parse_count("1.1k"), Ok(1_100));
    assert_eq!(parse_count("0.000001M"), Ok(1));
    assert_eq!(parse_count("1.234567G"), Ok(1_234_567_000));
}

/// Goal: nonsense is refused with the text and a correct example in the sentence.
#[test]
fn nonsense_is_refused_in_words() {
    for text in ["", "s", "-3", "3x", "1..2", "NaN", "inf", "1e3"] {
        let error = parse_duration_ns(text).unwrap_err();
        assert!(
            matches!(error, UnitError::Unreadable { .. }),
            "{text:?}: {error}"
        );
    }
    let message = parse_count("ten").unwrap_err().to_string();
    assert_eq!(
        message,
        "cannot read \"ten\" as a count; write for example 400, 10k or 1M"
    );
    let huge = "9".repeat(30);
    assert!(matches!(
        parse_count(&huge),
        Err(UnitError::TooLarge { .. })
    ));
}

#[test]
fn formats() {
    assert_eq!(format_duration_ns(950.0), "950 ns");
    assert_eq!(format_duration_ns(1_100_000.0), "1.10 ms");
    assert_eq!(format_duration_ns(999_960.0), "1.00 ms");
    assert_eq!(format_duration_ns(12_340_000_000.0), "12.3 s");
    assert_eq!(format_duration_ns(150e9), "2.50 min");
    assert_eq!(format_duration_ns(7200e9), "2.00 h");
    assert_eq!(format_bytes(512.0), "512 B");
    assert_eq!(format_bytes(24.2 * 1024.0 * 1024.0), "24.2 MiB");
    assert_eq!(format_bytes(1023.9 * 1024.0), "1.00 MiB");
    assert_eq!(format_count(950.0), "950");
    assert_eq!(format_count(0.25), "0.250");
    assert_eq!(format_count(12_345.0), "12.3k");
    assert_eq!(format_rate(1_234_567.0), "1.23M/s");
    assert_eq!(format_percent(0.02), "2 %");
    assert_eq!(format_percent(0.005), "0.5 %");
    assert_eq!(format_percent(0.1234), "12 %");
    assert_eq!(format_confidence(0.95), "95 %");
    assert_eq!(format_confidence(1.0 - 0.05 / 3.0), "98.3 %");
    assert_eq!(format_confidence(0.999_9), "99.9 %");
}

#[test]
fn utc_dates() {
    assert_eq!(format_utc(0), "1970-01-01 00:00:00 UTC");
    assert_eq!(format_utc(951_782_399), "2000-02-28 23:59:59 UTC");
    assert_eq!(format_utc(951_782_400), "2000-02-29 00:00:00 UTC");
    assert_eq!(format_utc(1_795_294_616), "2026-11-21 20:56:56 UTC");
}

proptest! {
    /// Goal: a printed time never needs more than three digits and is right to half a percent.
    #[test]
    fn printed_times_are_short_and_right(duration_ns in 1_u64..3_600_000_000_000) {
        let text = format_duration_ns(duration_ns as f64);
        let (number, unit) = text.split_once(' ').unwrap();
        let scale = match unit {
            "ns" => 1.0, "us" => 1e3, "ms" => 1e6, "s" => 1e9, "min" => 60e9, _ => 3600e9,
        };
        prop_assert!(number.len() <= 5, "{}", text);
        let back: f64 = number.parse::<f64>().unwrap() * scale;
        prop_assert!((back / duration_ns as f64 - 1.0).abs() < 0.0051, "{}", text);
    }
}
