//! Idle processors that stay awake while something is measured.
//!
//! A processor with nothing to do sleeps, and a request that comes then waits for it to wake. In a
//! virtual machine it is given back to the host meanwhile, which wakes it when it likes: that is most of
//! a latency at a constant rate, another one from minute to minute, and is told as stolen time. Linux
//! lets no processor sleep while a program asks for a latency of 0 (admin-guide/pm/cpuidle.rst, "Power
//! Management Quality of Service for CPUs"), until that program closes the file or ends.
//!
//! On the path: `compare` and `profile` hold it from their first process to the last. Absent on purpose: governors and
//! frequencies, which outlive who sets them.

use std::fs::{File, OpenOptions};
use std::io::{Error, Write};

use millpond_measure::environment::Environment;

use crate::error::LabError;

const REQUEST_FILE: &str = "/dev/cpu_dma_latency";

/// What processors do that have nothing to do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IdleCpus {
    /// In a virtual machine they stay awake if this user may ask for it; elsewhere they sleep. A real
    /// processor is back within microseconds, and one that stays awake takes speed from its sibling.
    #[default]
    Auto,
    /// They stay awake; a machine that does not let us is an error.
    Awake,
    /// They sleep as the system has it.
    Asleep,
}

/// As long as this is kept, no processor sleeps.
#[derive(Debug)]
pub(crate) struct Awake {
    _request: File,
}

impl Awake {
    /// Asks for it, if `wanted` on this machine.
    ///
    /// # Errors
    /// With [`IdleCpus::Awake`] alone: the file is for root, and a kernel without power management lacks
    /// it.
    pub(crate) fn hold(wanted: IdleCpus, machine: &Environment) -> Result<Option<Self>, LabError> {
        match wanted {
            IdleCpus::Asleep => Ok(None),
            IdleCpus::Awake => Self::ask().map(Some).map_err(|error| LabError::System {
                what: "keep idle CPUs awake through /dev/cpu_dma_latency, which is for root; leave out \
                       `--idle-cpus awake`",
                error,
            }),
            IdleCpus::Auto if machine.is_virtual_machine() => Ok(Self::ask().ok()),
            IdleCpus::Auto => Ok(None),
        }
    }

    /// Asks for it on any machine.
    pub(crate) fn ask() -> Result<Self, Error> {
        let mut request = OpenOptions::new().write(true).open(REQUEST_FILE)?;
        // The longest that a processor may take to be back, in microseconds.
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _request: request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(virtualisation: Option<&str>) -> Environment {
        Environment {
            virtualisation: virtualisation.map(str::to_owned),
            ..Environment::default()
        }
    }

    /// Goal: nobody's processors are kept awake who did not ask for it or is not in a virtual machine;
    /// who asked for it is told when it cannot be had.
    #[test]
    fn processors_are_kept_awake_where_that_is_wanted() {
        let is_allowed = Awake::ask().is_ok();
        let held = |wanted, virtualisation| {
            Awake::hold(wanted, &machine(virtualisation)).map(|awake| awake.is_some())
        };
        for place in [None, Some("container"), Some("virtual machine (X)")] {
            assert!(!held(IdleCpus::Asleep, place).unwrap());
            assert_eq!(held(IdleCpus::Awake, place).is_ok(), is_allowed);
        }
        assert!(!held(IdleCpus::Auto, None).unwrap());
        assert!(!held(IdleCpus::Auto, Some("container")).unwrap());
        for place in ["virtual machine (X)", "container in a virtual machine"] {
            assert_eq!(held(IdleCpus::Auto, Some(place)).unwrap(), is_allowed);
        }
    }
}
