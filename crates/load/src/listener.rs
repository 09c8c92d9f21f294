//! Who else looks at answers, besides the clocks: a script, the cookies of a user, the clock of
//! batches, a table of requests.
//!
//! On the path, only if one of them wants to: `worker` lends them for one call, `session` shows
//! them each part of an answer. Absent on purpose: a say in what is measured.
use crate::batches::Batches;
use crate::cookies::Cookies;
use crate::outcome::InFlight;
use crate::samples::Samples;
use crate::script::Runner;
use crate::workload::Requests;

/// All of them, as one connection's answers see them.
pub(crate) struct Listener<'a> {
    pub(crate) index: u32,
    pub(crate) script: Option<&'a mut Runner>,
    pub(crate) cookies: Option<&'a mut Cookies>,
    pub(crate) batches: Option<&'a mut Batches>,
    pub(crate) samples: Option<&'a mut Samples>,
}

/// An answer that is complete, and its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) request: &'a InFlight,
    pub(crate) status: u16,
    pub(crate) is_right: bool,
    /// How long connecting took, if the connection was opened for this request; else 0.
    pub(crate) connect_ns: u64,
    /// When its head was complete.
    pub(crate) head_ns: u64,
    pub(crate) now_ns: u64,
    /// When the request behind it was written, if there is one.
    pub(crate) next_written_ns: Option<u64>,
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
    #[cold]
    pub(crate) fn answered(&mut self, answered: &Answered<'_>) {
        if let Some(script) = &mut self.script {
            script.answered(self.index, answered.status);
        }
        if let Some(batches) = &mut self.batches {
            batches.answered(self.index, answered);
        }
        if let Some(samples) = &mut self.samples {
            samples.answered(answered);
        }
    }
}
