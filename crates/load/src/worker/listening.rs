//! A worker's company: who besides the clocks looks at its answers.
//!
//! Absent on purpose: anything per answer. One flag says whether anybody listens, so that a run
//! without listeners pays for looking at that flag alone.
use super::Worker;
use crate::cookies::Cookies;
use crate::script::Runner;

impl Worker<'_> {
    /// Lets each connection keep what the server sets, if the run is to.
    pub(super) fn give_cookies(&mut self) {
        let config = self.shared.config;
        if let Some(plan) = &config.cookies {
            let (users, is_tls) = (self.sessions.len(), config.tls.is_some());
            let cookies = Cookies::new(plan, users, is_tls, config.pool_mode);
            self.cookies = Some(Box::new(cookies));
            self.has_listener = true;
        }
    }

    /// Has a script make the requests.
    pub(crate) fn take_script(&mut self, script: Box<Runner>) {
        self.has_listener |= script.wants_answers();
        self.script = Some(script);
    }
}
