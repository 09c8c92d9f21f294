//! Every request of the well-behaved client with its two clocks, and what they come to without those
//! that a stall of the machine disturbed.

use super::stalls::Stall;
use std::path::Path;

/// One request, in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Exchange {
    written_unix_ns: u64,
    slip_ns: u64,
    service_ns: u64,
    /// Of a sample.
    kernel_service_ns: Option<u64>,
}

/// What is left of them, and its 99th percentiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undisturbed {
    /// Of all requests, those that are not in it.
    pub(super) disturbed_share: f64,
    /// From when a request left to when the kernel had the answer.
    pub(super) kernel_p99_ns: f64,
    /// From when it was meant to leave to its answer.
    pub(super) response_p99_ns: f64,
}

/// Reads what `millpond load --print requests=FILE` wrote.
pub(super) fn read(file: &Path) -> Result<Vec<Exchange>, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let lines = text.lines().skip(1);
    lines
        .map(|line| parse(line).ok_or_else(|| format!("{shown} has a line {line}")))
        .collect()
}

fn parse(line: &str) -> Option<Exchange> {
    let mut fields = line.split(',');
    let mut next = || fields.next();
    let written_unix_ns = next()?.parse().ok()?;
    let slip_ns = next()?.parse().ok()?;
    let (_connect, _waiting) = (next()?, next()?);
    let service_ns = next()?.parse().ok()?;
    let kernel_service_ns = match next()? {
        "" => None,
        field => Some(field.parse().ok()?),
    };
    Some(Exchange {
        written_unix_ns,
        slip_ns,
        service_ns,
        kernel_service_ns,
    })
}

/// Leaves out what `stalls` disturbed; `None` if nothing is left.
pub(super) fn undisturbed(exchanges: &[Exchange], stalls: &[Stall]) -> Option<Undisturbed> {
    let is_quiet = |exchange: &&Exchange| {
        let due_ns = exchange.written_unix_ns.saturating_sub(exchange.slip_ns);
        let end_ns = exchange.written_unix_ns + exchange.service_ns;
        !stalls.iter().any(|stall| stall.disturbs(due_ns, end_ns))
    };
    let quiet: Vec<&Exchange> = exchanges.iter().filter(is_quiet).collect();
    let left = quiet.len() as f64 / exchanges.len() as f64;
    let kernel = quiet.iter().filter_map(|one| one.kernel_service_ns);
    let response = quiet.iter().map(|one| one.slip_ns + one.service_ns);
    Some(Undisturbed {
        disturbed_share: 1.0 - left,
        kernel_p99_ns: p99(kernel.collect())?,
        response_p99_ns: p99(response.collect())?,
    })
}

/// The nearest rank.
fn p99(mut spans_ns: Vec<u64>) -> Option<f64> {
    spans_ns.sort_unstable();
    let rank = (spans_ns.len() * 99).div_ceil(100);
    Some(*spans_ns.get(rank.checked_sub(1)?)? as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines are read as they are written; one that is cut is none.
    #[test]
    fn lines_are_read() {
        let expected = Exchange {
            written_unix_ns: 1,
            slip_ns: 2,
            service_ns: 5,
            kernel_service_ns: Some(6),
        };
        assert_eq!(parse("1,2,3,4,5,6"), Some(expected));
        let unstamped = Exchange {
            kernel_service_ns: None,
            ..expected
        };
        assert_eq!(parse("1,2,3,4,5,"), Some(unstamped));
        assert_eq!(parse("1,2,3,4,5"), None);
        assert_eq!(parse("1,2,3,4,x,"), None);
    }

    /// Goal: a stall takes the requests under way with it, however late they left, and no others; the
    /// percentile is of the rest.
    #[test]
    fn what_a_stall_disturbed_is_left_out() {
        let one = |due_ns: u64, slip_ns, service_ns| Exchange {
            written_unix_ns: due_ns + slip_ns,
            slip_ns,
            service_ns,
            kernel_service_ns: Some(service_ns),
        };
        let mut all: Vec<Exchange> = (1..=100)
            .map(|number| one(number * 1000, 0, number))
            .collect();
        let p99 = |all: &[Exchange], stalls: &[Stall]| {
            undisturbed(all, stalls).map(|left| (left.kernel_p99_ns, left.response_p99_ns))
        };
        assert_eq!(p99(&all, &[]), Some((99.0, 99.0)));
        let stall = Stall {
            start_ns: 200_000,
            end_ns: 210_000,
        };
        all.push(one(195_000, 7_000, 9_000));
        all.push(one(205_000, 0, 8_000));
        all.push(one(215_000, 0, 7_000));
        let left = undisturbed(&all, &[stall]).unwrap();
        assert_eq!((left.kernel_p99_ns, left.response_p99_ns), (99.0, 99.0));
        assert!((left.disturbed_share - 3.0 / 103.0).abs() < 1e-9);
        assert!(undisturbed(&all, &[]).unwrap().response_p99_ns > 7_000.0);
        assert!(undisturbed(&[], &[]).is_none());
    }
}
