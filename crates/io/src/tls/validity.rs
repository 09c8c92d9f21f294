//! When a certificate begins and ends to be valid, read from its DER.

/// A certificate's times, in seconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Validity {
    pub(super) from_s: i64,
    pub(super) until_s: i64,
}

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `[0]`, the version.
const VERSION: u8 = 0xa0;

impl Validity {
    /// Of a certificate (RFC 5280, 4.1); `None` where it is none.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let mut outer = Reader(certificate);
        let mut signed = Reader(Reader(outer.take(SEQUENCE)?).take(SEQUENCE)?);
        if signed.0.first() == Some(&VERSION) {
            signed.take(VERSION)?;
        }
        signed.take(INTEGER)?;
        // The signature's algorithm, the issuer.
        signed.take(SEQUENCE)?;
        signed.take(SEQUENCE)?;
        let mut times = Reader(signed.take(SEQUENCE)?);
        Some(Self {
            from_s: times.take_time()?,
            until_s: times.take_time()?,
        })
    }
}

/// DER elements, from the front on.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The content of the next element, which has to have this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&found, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let len = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x84 => {
                let digits;
                (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                digits
                    .iter()
                    .fold(0, |len, digit| len << 8 | usize::from(*digit))
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        (found == tag).then_some(content)
    }

    /// A time as text: `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, both in UTC.
    fn take_time(&mut self) -> Option<i64> {
        let tag = *self.0.first()?;
        let text = self.take(tag)?.strip_suffix(b"Z")?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = text.split_at_checked(2)?;
                let year = number(year)?;
                (year + if year < 50 { 2000 } else { 1900 }, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = text.split_at_checked(4)?;
                (number(year)?, rest)
            }
            _ => return None,
        };
        if rest.len() != 10 {
            return None;
        }
        let part = |index: usize| number(&rest[2 * index..][..2]);
        let days = days_since_1970(year, part(0)?, part(1)?)?;
        Some(days * 86_400 + part(2)? * 3_600 + part(3)? * 60 + part(4)?)
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    let mut value = 0;
    for digit in digits {
        value = 10 * value + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    Some(value)
}

/// Days of the Gregorian calendar. Years begin with March here, so that a leap day is the last.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // From 0000-03-01 to 1970-01-01.
    Some(365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468)
}

/// A time as a day, for a message.
pub(super) fn day_of(seconds: i64) -> String {
    let mut days = seconds.div_euclid(86_400);
    let mut year = 1970;
    let len_of = |year: i64| {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        365 + i64::from(is_leap)
    };
    while days < 0 {
        year -= 1;
        days += len_of(year);
    }
    while days >= len_of(year) {
        days -= len_of(year);
        year += 1;
    }
    let start = days_since_1970(year, 1, 1).unwrap_or(0);
    let mut month = 12;
    while days_since_1970(year, month, 1).unwrap_or(0) - start > days {
        month -= 1;
    }
    let day = days - (days_since_1970(year, month, 1).unwrap_or(0) - start) + 1;
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
#[path = "tests/validity.rs"]
mod tests;
