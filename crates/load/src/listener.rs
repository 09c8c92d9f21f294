//! Who else looks at answers, besides the clocks: a script, the cookies of a user.
//!
//! On the path, only if one of them wants to: `worker` lends them for one call, `session` shows
//! them each part of an answer. Absent on purpose: a say in what is measured.
use crate::cookies::Cookies;
use crate::outcome::InFlight;
use crate::script::Runner;
use crate::workload::Requests;

/// All of them, as one connection's answers see them.
pub(crate) struct Listener<'a> {
    pub(crate) index: u32,
    pub(crate) script: Option<&'a mut Runner>,
    pub(crate) cookies: Option<&'a mut Cookies>,
}

impl Listener<'_> {
    /// The head of an answer is complete.
    pub(crate) fn head(
        &mut self,
        request: Option<&InFlight>,
        head: &[u8],
        requests: &Requests,
        now_ns: u64,
    ) {
        if let Some(script) = &mut self.script {
            script.head(self.index, head);
        }
        if let Some(cookies) = &mut self.cookies {
            cookies.head(self.index, request, head, requests, now_ns);
        }
    }

    /// The next bytes of its body have come.
    pub(crate) fn part(&mut self, part: &[u8]) {
        if let Some(script) = &mut self.script {
            script.part(self.index, part);
        }
    }

    /// It is complete.
    pub(crate) fn answered(&mut self, status: u16) {
        if let Some(script) = &mut self.script {
            script.answered(self.index, status);
        }
    }
}
