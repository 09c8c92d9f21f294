//! A worker's company: who besides the clocks looks at its answers.
//!
//! Absent on purpose: anything per answer. One flag says whether anybody listens, so that a run
//! without listeners pays for looking at that flag alone.
use super::Worker;
use crate::batches::Batches;
use crate::cookies::Cookies;
use crate::samples::Samples;
use crate::script::Runner;

impl Worker<'_> {
    /// Brings in who is to look at answers in this run.
    pub(super) fn give_listeners(&mut self) {
        let config = self.shared.config;
        if config.batch_latency {
            self.batches = Some(Box::new(Batches::new(self.sessions.len())));
        }
        if config.samples_max > 0 {
            let room = config.samples_max / self.shared.boards.len();
            self.samples = Some(Box::new(Samples::new(room)));
        }
        self.has_listener = self.batches.is_some() || self.samples.is_some();
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
