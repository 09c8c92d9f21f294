//! Numbers as people write and read them: `30s`, `1k`, `0.97MB`.
//!
//! `cli` parses flags with the `parse_*` functions, the reports print with the `format_*` ones.
//! wrk's own rounding rules live in `report/wrk.rs`; these are ours.

use thiserror::Error;

/// A number on the command line that cannot be read.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum UnitError {
    /// Not a number with a known suffix.
    #[error("cannot read \"{text}\" as {what}; write for example {example}")]
    Unreadable {
        /// The given text.
        text: String,
        /// The expected form.
        what: &'static str,
        /// A correct spelling.
        example: &'static str,
    },
    /// Larger than the type holds.
    #[error("{what} \"{text}\" is too large")]
    TooLarge {
        /// The given text.
        text: String,
        /// The expected form.
        what: &'static str,
    },
}

/// Splits `12.5ms` into its number and its suffix.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|letter: char| !(letter.is_ascii_digit() || letter == '.' || letter == '_'))
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let value: f64 = digits.replace('_', "").parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value, suffix.trim()))
}

fn scaled(
    text: &str,
    what: &'static str,
    example: &'static str,
    scale_of: impl Fn(&str) -> Option<f64>,
) -> Result<u64, UnitError> {
    let unreadable = || UnitError::Unreadable {
        text: text.to_owned(),
        what,
        example,
    };
    let (value, suffix) = split(text).ok_or_else(unreadable)?;
    let scale = scale_of(suffix).ok_or_else(unreadable)?;
    let product = value * scale;
    // Well past any time or size here, and still exact enough as a float.
    if product >= 9e18 {
        return Err(UnitError::TooLarge {
            text: text.to_owned(),
            what,
        });
    }
    Ok(product.round() as u64)
}

/// Reads a count: `400`, `10k`, `1.5M`, `2G` (powers of 1000, as in wrk).
///
/// # Errors
/// [`UnitError`] names the text and shows a correct one; half a request is none.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    let (what, example) = ("a count", "400, 10k or 1M");
    let scale_of = |suffix: &str| match suffix {
        "" => Some(1.0),
        "k" | "K" => Some(1e3),
        "m" | "M" => Some(1e6),
        "g" | "G" => Some(1e9),
        _ => None,
    };
    let count = scaled(text, what, example, scale_of)?;
    let exact = split(text).and_then(|(value, suffix)| Some(value * scale_of(suffix)?));
    // 1.1k is 1100 on paper, and a hair more in binary.
    if exact.is_some_and(|exact| (exact - count as f64).abs() > 1e-9 * exact.max(1.0)) {
        return Err(UnitError::Unreadable {
            text: text.to_owned(),
            what,
            example,
        });
    }
    Ok(count)
}

/// Reads a duration in nanoseconds: `30s`, `5m`, `2h`, `250ms`, `50us`, `1m30s`; a bare number is seconds.
///
/// # Errors
/// [`UnitError`] names the text and shows a correct one. Of several parts each has a unit, the larger one first: so
/// `1m30` and `30s1m` are refused, and not guessed at.
pub fn parse_duration_ns(text: &str) -> Result<u64, UnitError> {
    let (what, example) = ("a duration", "30s, 5m, 1m30s or 250ms");
    let scale_of = |suffix: &str| match suffix {
        "ns" => Some(1.0),
        "us" | "µs" => Some(1e3),
        "ms" => Some(1e6),
        "" | "s" | "S" => Some(1e9),
        "m" | "M" | "min" => Some(60e9),
        "h" | "H" => Some(3600e9),
        _ => None,
    };
    let unreadable = || UnitError::Unreadable {
        text: text.to_owned(),
        what,
        example,
    };
    let too_large = || UnitError::TooLarge {
        text: text.to_owned(),
        what,
    };
    let (mut sum_ns, mut last_scale) = (0_u64, f64::INFINITY);
    let mut rest = text.trim();
    while !rest.is_empty() {
        let part = first_part(rest);
        let suffix = split(part).ok_or_else(unreadable)?.1;
        let scale = scale_of(suffix).ok_or_else(unreadable)?;
        let is_whole = part.len() == text.trim().len();
        if scale >= last_scale || suffix.is_empty() && !is_whole {
            return Err(unreadable());
        }
        let part_ns = scaled(part, what, example, scale_of).map_err(|error| match error {
            UnitError::TooLarge { .. } => too_large(),
            UnitError::Unreadable { .. } => unreadable(),
        })?;
        sum_ns = sum_ns.checked_add(part_ns).ok_or_else(too_large)?;
        last_scale = scale;
        rest = rest[part.len()..].trim_start();
    }
    (last_scale.is_finite())
        .then_some(sum_ns)
        .ok_or_else(unreadable)
}

/// A number and its unit: up to the digit after the unit.
fn first_part(text: &str) -> &str {
    let is_of_number = |letter: char| letter.is_ascii_digit() || letter == '.' || letter == '_';
    let unit = text.find(|letter| !is_of_number(letter));
    let unit = unit.unwrap_or(text.len());
    let end = text[unit..].find(|letter: char| letter.is_ascii_digit());
    &text[..end.map_or(text.len(), |end| unit + end)]
}

/// Reads a size in bytes: `1024`, `64KiB`, `64K`, `1M`, `2GiB` (powers of 1024), `1kB` (1000).
///
/// # Errors
/// [`UnitError`] names the text and shows a correct one.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    scaled(text, "a size", "1024, 64KiB or 1M", |suffix| match suffix {
        "" | "b" | "B" => Some(1.0),
        "kB" => Some(1e3),
        "MB" => Some(1e6),
        "GB" => Some(1e9),
        "k" | "K" | "KiB" => Some(1024.0),
        "m" | "M" | "MiB" => Some(1024.0 * 1024.0),
        "g" | "G" | "GiB" => Some(1024.0 * 1024.0 * 1024.0),
        _ => None,
    })
}

/// Three significant digits, no exponent: `0.123`, `1.23`, `12.3`, `123`.
#[must_use]
pub fn format_three_digits(value: f64) -> String {
    let magnitude = value.abs();
    // The thresholds round up together with the digits: 9.996 is "10.0", not "10.00".
    if magnitude >= 99.95 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.9995 || magnitude == 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

fn format_scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut index = 0;
    // 999.5 would print as "1000": move on to the next unit just before.
    while index + 1 < units.len() && value.abs() >= step * 0.9995 {
        value /= step;
        index += 1;
    }
    format!("{}{}", format_three_digits(value), units[index])
}

/// A time: `950 ns`, `1.10 ms`, `12.3 s`, `2.50 min`.
#[must_use]
pub fn format_duration_ns(duration_ns: f64) -> String {
    if duration_ns.abs() < 999.5 {
        return format!("{duration_ns:.0} ns");
    }
    let seconds = duration_ns / 1e9;
    if seconds.abs() >= 5400.0 {
        format!("{} h", format_three_digits(seconds / 3600.0))
    } else if seconds.abs() >= 99.95 {
        format!("{} min", format_three_digits(seconds / 60.0))
    } else {
        format_scaled(duration_ns / 1e3, 1e3, &[" us", " ms", " s"])
    }
}

/// A size: `512 B`, `1.50 KiB`, `24.2 MiB`, or a change of one: `-1.50 KiB`.
#[must_use]
pub fn format_bytes(bytes: f64) -> String {
    if bytes < 0.0 {
        return format!("-{}", format_bytes(-bytes));
    }
    if bytes < 1023.5 {
        return format!("{bytes:.0} B");
    }
    format_scaled(bytes / 1024.0, 1024.0, &[" KiB", " MiB", " GiB", " TiB"])
}

/// A plain number with k, M, G: `950`, `12.3k`, `1.50M`.
#[must_use]
pub fn format_count(count: f64) -> String {
    if count.abs() < 999.5 {
        return format_three_digits(count)
            .trim_end_matches(".00")
            .to_owned();
    }
    format_scaled(count / 1e3, 1e3, &["k", "M", "G", "T"])
}

/// A rate: `12.3k/s`.
#[must_use]
pub fn format_rate(per_s: f64) -> String {
    format!("{}/s", format_count(per_s))
}

/// A share as percent with at most one decimal: `2 %`, `0.5 %`, `12 %`.
#[must_use]
pub fn format_percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = usize::from(percent.abs() < 9.95);
    let text = format!("{percent:.digits$}");
    format!("{} %", text.strip_suffix(".0").unwrap_or(&text))
}

/// The same with a capital letter at its beginning.
#[must_use]
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// A ratio as what it changes, with its sign: `-38 %`, `+2.1 %`, `0 %`.
#[must_use]
pub fn format_change(ratio: f64) -> String {
    let text = format_percent(ratio - 1.0);
    match text.as_str() {
        "-0 %" => "0 %".to_owned(),
        other if ratio > 1.0 && other != "0 %" => format!("+{other}"),
        _ => text,
    }
}

/// The confidence of an interval in tenths of a percent, never rounded up: `98.3 %`, `95 %`.
#[must_use]
pub fn format_confidence(share: f64) -> String {
    // A value of 0.95 on paper may be a little less in binary.
    let tenths = (share * 1_000.0 + 1e-6).floor() / 10.0;
    format!("{tenths} %")
}

/// Seconds since 1970 as `2026-11-21 20:56:56 UTC`.
#[must_use]
pub fn format_utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
#[path = "tests/units.rs"]
mod tests;
