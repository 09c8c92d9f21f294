//! What asks a target to end: SIGTERM for most, SIGQUIT for those that finish their work first (nginx).

use rustix::process::Signal;

/// A signal by name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGINT.
    Int,
    /// SIGQUIT.
    Quit,
    /// SIGHUP.
    Hup,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
}

impl StopSignal {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Term,
        Self::Int,
        Self::Quit,
        Self::Hup,
        Self::Usr1,
        Self::Usr2,
    ];

    /// `TERM` or `SIGTERM`, in either case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_uppercase();
        let short = name.strip_prefix("SIG").unwrap_or(&name);
        Self::ALL.into_iter().find(|signal| signal.name() == short)
    }

    /// Without SIG.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Quit => "QUIT",
            Self::Hup => "HUP",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
        }
    }

    pub(super) const fn signal(self) -> Signal {
        match self {
            Self::Term => Signal::TERM,
            Self::Int => Signal::INT,
            Self::Quit => Signal::QUIT,
            Self::Hup => Signal::HUP,
            Self::Usr1 => Signal::USR1,
            Self::Usr2 => Signal::USR2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_found_by_their_names() {
        for signal in StopSignal::ALL {
            assert_eq!(StopSignal::named(signal.name()), Some(signal));
        }
        assert_eq!(StopSignal::named("sigquit"), Some(StopSignal::Quit));
        assert_eq!(StopSignal::named("KILL"), None);
    }
}
