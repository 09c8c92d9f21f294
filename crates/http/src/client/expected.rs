//! Which requests the responses to come will answer.
//!
//! On the path: `client` asks before each response, since its method decides how it is framed.
//! Absent on purpose: what else a request was. Who wrote it knows.

use crate::method::Method;
use std::collections::VecDeque;

/// Methods of the requests not answered yet, oldest first, as runs: most connections ask all alike.
#[derive(Debug)]
pub(super) struct Expected {
    /// Of the oldest run.
    pub(super) method: Method,
    /// Its length; 0: nothing is expected.
    pub(super) count: usize,
    /// Empty where nothing is expected.
    behind: VecDeque<(Method, usize)>,
}

impl Default for Expected {
    fn default() -> Self {
        Self {
            method: Method::Get,
            count: 0,
            behind: VecDeque::new(),
        }
    }
}

impl Expected {
    #[inline]
    pub(super) fn push(&mut self, method: Method, count: usize) {
        if self.count == 0 {
            (self.method, self.count) = (method, count);
        } else if self.behind.is_empty() && self.method == method {
            self.count += count;
        } else {
            self.push_behind(method, count);
        }
    }

    fn push_behind(&mut self, method: Method, count: usize) {
        match self.behind.back_mut() {
            Some((last, last_count)) if *last == method => *last_count += count,
            _ => self.behind.push_back((method, count)),
        }
    }

    /// So many of the oldest run are answered.
    #[inline]
    pub(super) fn take(&mut self, count: usize) {
        self.count = self.count.saturating_sub(count);
        if self.count == 0
            && let Some(next) = self.behind.pop_front()
        {
            (self.method, self.count) = next;
        }
    }

    pub(super) fn len(&self) -> usize {
        let behind = self.behind.iter().map(|(_, count)| count);
        self.count + behind.sum::<usize>()
    }
}
