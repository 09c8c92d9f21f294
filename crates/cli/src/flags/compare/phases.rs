//! `--phases` and `--cycles` of `millpond compare`: load that changes over each run.

use super::super::{parse_count, parse_duration_ns};
use crate::output::Failure;
use clap::{Args, value_parser};
use millpond_measure::record::{PhaseKind, PhasePlan, PhaseSpec};
use std::path::Path;

/// Without `--cycles`: the first fills what is filled once, two more show growth.
const CYCLES_DEFAULT: u32 = 3;
/// Connections of a burst that names neither connections nor a rate, as a multiple of the usual ones.
const BURST_CONNECTIONS: u32 = 4;
const BURST_CONNECTIONS_MAX: u32 = 1024;
/// Longer files are not lists of phases.
const FILE_BYTES_MAX: u64 = 64 * 1024;

#[derive(Args, Debug)]
pub(super) struct PhaseFlags {
    /// Compare memory over time: each run repeats these phases, NAME:TIME, where NAME is steady, burst, churn or idle,
    /// with :connections=N, :rate=N or :path=/... behind it; or FILE with one a line. Answers how far memory falls after
    /// a burst, how soon, whether it grows from cycle to cycle and whose that is, and what it costs in CPU and p99 of
    /// steady phases. A churn ages the heap: behind it, CPU per request is compared with that before it
    #[arg(long, value_name = "PHASE,...|FILE", help_heading = "Phases")]
    phases: Option<String>,
    /// How often each run repeats the phases [default: 3]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100), requires = "phases",
        help_heading = "Phases")]
    cycles: Option<u32>,
}

impl PhaseFlags {
    /// What was asked for, where the usual load has so many connections; `None` without `--phases`.
    pub(super) fn plan(&self, connections: u64) -> Result<Option<PhasePlan>, Failure> {
        let Some(text) = &self.phases else {
            return Ok(None);
        };
        let wrong = |sentence: String| Failure::usage(format!("--phases {text}: {sentence}"));
        let path = Path::new(text);
        let list = match path.is_file() {
            true => read_list(path).map_err(wrong)?,
            false => text.clone(),
        };
        let mut plan = parse(&list).map_err(wrong)?;
        plan.cycles = self.cycles.unwrap_or(CYCLES_DEFAULT);
        let usual = u32::try_from(connections).unwrap_or(u32::MAX);
        for spec in &mut plan.phases {
            let is_plain = spec.connections.is_none() && spec.rate_per_s.is_none();
            if spec.kind == PhaseKind::Burst && is_plain && spec.path.is_none() {
                let more = usual.saturating_mul(BURST_CONNECTIONS);
                spec.connections = Some(more.min(BURST_CONNECTIONS_MAX.max(usual)));
            }
        }
        Ok(Some(plan))
    }
}

/// The phases of a file, as one would write them on the command line; `#` begins a comment.
fn read_list(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if length.len() > FILE_BYTES_MAX {
        return Err(format!(
            "the file has {} bytes; a list of phases has {FILE_BYTES_MAX} at most",
            length.len()
        ));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    Ok(lines.join(","))
}

fn parse(list: &str) -> Result<PhasePlan, String> {
    let phases: Result<Vec<PhaseSpec>, String> = list
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(parse_phase)
        .collect();
    Ok(PhasePlan {
        phases: phases?,
        cycles: CYCLES_DEFAULT,
    })
}

fn parse_phase(text: &str) -> Result<PhaseSpec, String> {
    let example = "write it as steady:20s, burst:5s:connections=256 or idle:15s";
    let mut parts = text.splitn(3, ':');
    let kind = match parts.next().unwrap_or_default() {
        "steady" => PhaseKind::Steady,
        "burst" => PhaseKind::Burst,
        "churn" => PhaseKind::Churn,
        "idle" => PhaseKind::Idle,
        other => {
            return Err(format!(
                "\"{other}\" is no phase, which is steady, burst, churn or idle; {example}"
            ));
        }
    };
    let length = parts
        .next()
        .ok_or_else(|| format!("\"{text}\" has no length; {example}"))?;
    let duration_ns = parse_duration_ns(length).map_err(|error| format!("\"{text}\": {error}"))?;
    let mut spec = PhaseSpec {
        kind,
        duration_ns,
        ..PhaseSpec::default()
    };
    let mut rest = parts.next().unwrap_or_default();
    while !rest.is_empty() {
        // A path may have colons, and is the last.
        let (option, more) = match rest.starts_with("path=") {
            true => (rest, ""),
            false => rest.split_once(':').unwrap_or((rest, "")),
        };
        set(&mut spec, option).map_err(|error| format!("\"{text}\": {error}"))?;
        rest = more;
    }
    Ok(spec)
}

fn set(spec: &mut PhaseSpec, option: &str) -> Result<(), String> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    if spec.kind == PhaseKind::Idle {
        return Err(format!(
            "an idle phase has no requests, and takes no {name}"
        ));
    }
    match name {
        "connections" => {
            let count = parse_count(value)?;
            spec.connections =
                Some(u32::try_from(count).map_err(|_| "too many connections".to_owned())?);
        }
        "rate" => spec.rate_per_s = Some(parse_count(value)? as f64),
        "path" if value.starts_with('/') => spec.path = Some(value.to_owned()),
        "path" => return Err(format!("a path begins with /, not {value}")),
        _ => {
            return Err(format!(
                "\"{name}\" is not known here: use connections=N, rate=N or path=/..."
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &str) -> PhaseFlags {
        PhaseFlags {
            phases: Some(text.to_owned()),
            cycles: None,
        }
    }

    /// Goal: each part of a phase is read, a path with its colons; a burst that names nothing has more connections.
    #[test]
    fn phases_are_read() {
        let text = "steady:20s:rate=500, burst:5s, burst:1s:connections=9:path=/a?t=1:2 ,idle:15s";
        let plan = flags(text).plan(64).unwrap().unwrap();
        let kinds: Vec<PhaseKind> = plan.phases.iter().map(|spec| spec.kind).collect();
        use PhaseKind::{Burst, Idle, Steady};
        assert_eq!(kinds, [Steady, Burst, Burst, Idle]);
        assert_eq!(plan.phases[0].rate_per_s, Some(500.0));
        assert_eq!(plan.phases[0].duration_ns, 20_000_000_000);
        assert_eq!(plan.phases[1].connections, Some(256));
        assert_eq!(plan.phases[2].connections, Some(9));
        assert_eq!(plan.phases[2].path.as_deref(), Some("/a?t=1:2"));
        assert_eq!(plan.cycles, 3);
        assert_eq!(plan.label(1), "burst 1");
        assert_eq!(plan.label(3), "idle");
    }

    /// Goal: what cannot be read is refused with the part that is wrong and an example.
    #[test]
    fn wrong_phases_are_refused() {
        for (text, part) in [
            ("calm:5s", "\"calm\" is no phase"),
            ("steady", "has no length"),
            ("steady:soon", "duration"),
            ("idle:5s:rate=5", "takes no rate"),
            ("burst:5s:speed=5", "\"speed\" is not known here"),
            ("burst:5s:path=x", "begins with /"),
            ("burst:5s:connections=0", ""),
        ] {
            let error = parse_phase(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// Goal: a file has one a line, with comments.
    #[test]
    fn a_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("phases");
        std::fs::write(&file, "# a day\nsteady:20s\nburst:5s # noon\n\nidle:15s\n").unwrap();
        let plan = flags(file.to_str().unwrap()).plan(600).unwrap().unwrap();
        assert_eq!(plan.phases.len(), 3);
        assert_eq!(plan.phases[1].connections, Some(1024));
    }
}
