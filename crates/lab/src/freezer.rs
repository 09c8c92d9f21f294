//! Stops a target between its slices, so that it takes nothing from the candidate that is measured.
//!
//! By the freezer of its control group, which processes do not notice; without a group by SIGSTOP, which
//! the parents of workers see. A frozen target can be killed at any time, and has to be thawed before it is
//! asked to end.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::RunError;
use crate::session::Session;

/// A group is frozen once none of its tasks is in the kernel any more: at once, as a rule.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// A process may fork while its tree is being stopped.
const SIGNAL_PASSES: usize = 3;

/// Stops every process of `session`; returns when they have stopped.
pub(crate) fn freeze(session: &Session) -> Result<(), RunError> {
    set_frozen(session, true)
}

/// Lets them run again.
pub(crate) fn thaw(session: &Session) -> Result<(), RunError> {
    set_frozen(session, false)
}

fn set_frozen(session: &Session, is_frozen: bool) -> Result<(), RunError> {
    let Some(group) = &session.cgroup else {
        signal(session, is_frozen);
        return Ok(());
    };
    let what = if is_frozen { "freeze" } else { "thaw" };
    let refused = |error: std::io::Error| {
        RunError::Figures(format!("its control group cannot {what} it: {error}"))
    };
    group.set_frozen(is_frozen).map_err(refused)?;
    let deadline = Instant::now() + FREEZE_TIMEOUT;
    while group.is_frozen().map_err(refused)? != is_frozen {
        if Instant::now() > deadline {
            let seconds = FREEZE_TIMEOUT.as_secs();
            return Err(RunError::Figures(format!(
                "its control group did not {what} it within {seconds} s"
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Parents first: one that sees a worker stop may start another.
fn signal(session: &Session, is_frozen: bool) {
    let (signal, passes) = match is_frozen {
        true => (Signal::STOP, SIGNAL_PASSES),
        false => (Signal::CONT, 1),
    };
    for _ in 0..passes {
        for pid in session.tree.members() {
            // One that has ended in the meantime needs no signal.
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}
