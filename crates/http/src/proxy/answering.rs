//! The upstream's side of a request: its answer to the client, or another try, or the reason why not.
//!
//! On the path: `service` calls it with every event of an exchange, at the moment its bytes arrive.
//!
//! Absent on purpose: the choice of upstreams, and what a failure is worth: see `upstreams`, `retry`.

use super::counters::Cell;
use super::failure::Failure;
use super::proxied::{BodyState, Proxied};
use super::response_head::{HeadRefused, forward_informational, forward_switch};
use super::retry::may_retry;
use super::service::Proxy;
use super::upgrade::is_agreed;
use crate::access_log::Relayed;
use crate::client::{AnswerHead, ExchangeFailure, ExchangeReport, Phase};
use crate::completions::Completions;
use crate::service::Flow;
use crate::status::StatusCode;
use crate::streaming::has_room_for_part;
use millpond_mempool::Handle;

/// Until there was a connection, from then to the first byte, and in all.
fn times_ns(report: &ExchangeReport) -> [u64; 3] {
    [report.connection_ns, report.first_byte_ns, report.total_ns]
}

impl Proxy {
    /// Tells the access log, if there is one, how the try under way goes.
    #[inline]
    fn note_answer(&self, handle: Handle<Proxied>, completions: &mut Completions<'_>) {
        if completions.is_logged() {
            self.note_logged_answer(handle, completions);
        }
    }

    #[cold]
    fn note_logged_answer(&self, handle: Handle<Proxied>, completions: &mut Completions<'_>) {
        if let Some(proxied) = self.requests.get(handle)
            && let Some((chosen, exchange)) = proxied.current
            && let Some(report) = self.client.report(exchange, completions.now_ns())
        {
            let name = self.upstreams.name(chosen.id);
            let relayed = Relayed::new(name, proxied.tries, times_ns(&report));
            completions.note(proxied.token, relayed);
        }
    }

    /// The answer's head has come.
    pub(super) fn take_head(
        &mut self,
        handle: Handle<Proxied>,
        answer: &AnswerHead<'_>,
        completions: &mut Completions<'_>,
    ) {
        self.note_answer(handle, completions);
        let (known_answers, config) = (&mut self.known_answers, &self.config);
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let Some((chosen, exchange)) = proxied.current else {
            return;
        };
        self.upstreams.answered(chosen.id, answer.status());
        let is_quiet = self.config.quiet_errors;
        let mut refused = None;
        let mut has_room = true;
        let mut is_tunnel = false;
        let is_there = completions.proceed(proxied.token, |response, _pools| {
            let is_switch = answer.status().code() == 101;
            let written = match is_switch {
                true if !is_agreed(proxied.head.asked_protocol(), answer) => {
                    Err(Failure::OtherProtocol)
                }
                true => forward_switch(response, answer)
                    .map(|()| false)
                    .map_err(HeadRefused::failure),
                false => known_answers
                    .forward(response, answer, &config.answer_changes)
                    .map_err(HeadRefused::failure),
            };
            match written {
                Ok(_) if is_switch => {
                    is_tunnel = true;
                    proxied.body_state = BodyState::Passing;
                    proxied.is_answering = true;
                    Flow::Stream(proxied.wants())
                }
                Ok(passes_trailers) => {
                    proxied.is_answering = true;
                    proxied.is_answered = !response.outgoing.is_open();
                    proxied.passes_answer_trailers = passes_trailers;
                    has_room = has_room_for_part(response.output);
                    match proxied.is_answered {
                        true => Flow::Done,
                        false => Flow::Stream(proxied.wants()),
                    }
                }
                Err(failure) => {
                    failure.answer(response, is_quiet);
                    refused = Some(failure);
                    Flow::Done
                }
            }
        });
        if is_tunnel {
            self.upstreams.count(chosen.id, Cell::Tunnels);
        }
        if let Some(failure) = refused {
            self.client.abort(exchange);
            let now_ns = completions.now_ns();
            self.upstreams
                .failed(chosen.id, failure, None, false, now_ns);
            self.remove_request(handle);
        } else if !is_there {
            self.give_up(handle);
        } else if !has_room {
            self.pause_if_full(handle, completions);
        }
    }

    /// All of the answer has come, and the exchange is over.
    pub(super) fn take_whole(
        &mut self,
        handle: Handle<Proxied>,
        (answer, body): (&AnswerHead<'_>, &[u8]),
        report: &ExchangeReport,
        completions: &mut Completions<'_>,
    ) {
        let (known_answers, config) = (&mut self.known_answers, &self.config);
        let Some(proxied) = self.requests.get(handle) else {
            return;
        };
        let Some((chosen, _)) = proxied.current else {
            return;
        };
        let token = proxied.token;
        if completions.is_logged() {
            let name = self.upstreams.name(chosen.id);
            let relayed = Relayed::new(name, proxied.tries, times_ns(report));
            completions.note(token, relayed);
        }
        let is_quiet = self.config.quiet_errors;
        let mut refused = None;
        let is_there = completions.proceed(token, |response, _pools| {
            match known_answers.forward(response, answer, &config.answer_changes) {
                Ok(_) => {
                    // Without memory for it the answer is cut, so that the client sees it.
                    let _ = response.write(body);
                }
                Err(error) => {
                    let failure = error.failure();
                    failure.answer(response, is_quiet);
                    refused = Some(failure);
                }
            }
            Flow::Done
        });
        let now_ns = completions.now_ns();
        match refused {
            Some(failure) => self
                .upstreams
                .failed(chosen.id, failure, None, false, now_ns),
            None if is_there => {
                let status = answer.status();
                self.upstreams.answered_whole(chosen.id, status, report);
            }
            None => self.upstreams.client_gone(chosen.id),
        }
        self.discard_request(handle);
    }

    /// A client that takes nothing has its upstream paused.
    #[cold]
    fn pause_if_full(&mut self, handle: Handle<Proxied>, completions: &mut Completions<'_>) {
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let Some((_, exchange)) = proxied.current else {
            return;
        };
        if !proxied.is_answered && !proxied.is_paused && completions.is_full(proxied.token) {
            proxied.is_paused = true;
            self.client.pause(exchange);
            completions.proceed(proxied.token, |_, _| Flow::Stream(proxied.wants()));
        }
    }

    /// 100 Continue lets the client go on; others are passed on to who knows of them and reads them.
    pub(super) fn take_informational(
        &mut self,
        handle: Handle<Proxied>,
        answer: &AnswerHead<'_>,
        completions: &mut Completions<'_>,
    ) {
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        if answer.status() == StatusCode::CONTINUE {
            if proxied.body_state == BodyState::AwaitsContinue {
                // Reading on makes the server tell the client so.
                proxied.body_state = BodyState::Passing;
                completions.proceed(proxied.token, |_, _| Flow::Stream(proxied.wants()));
            }
        } else if proxied.is_new_version && !completions.is_full(proxied.token) {
            // Before its answer no upstream is paused: what a client that reads nothing has no room for is
            // left out, or an upstream decided how much is kept for it.
            completions.proceed(proxied.token, |response, _| {
                // One that cannot be passed on is no loss: the answer is still to come.
                let _ = forward_informational(response, answer);
                Flow::Stream(proxied.wants())
            });
        }
    }

    pub(super) fn take_part(
        &mut self,
        handle: Handle<Proxied>,
        part: &[u8],
        completions: &mut Completions<'_>,
    ) {
        self.note_answer(handle, completions);
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let mut is_written = false;
        let mut has_room = true;
        completions.proceed(proxied.token, |response, _pools| {
            is_written = response.write(part).is_ok();
            if !is_written {
                return Flow::Done;
            }
            has_room = has_room_for_part(response.output);
            proxied.is_answered = !response.outgoing.is_open();
            match proxied.is_answered {
                true => Flow::Done,
                false => Flow::Stream(proxied.wants()),
            }
        });
        if !is_written {
            // The client has gone, or there is no memory for what it should get.
            self.give_up(handle);
        } else if !has_room {
            self.pause_if_full(handle, completions);
        }
    }

    pub(super) fn take_end(
        &mut self,
        handle: Handle<Proxied>,
        trailer: &[u8],
        report: &ExchangeReport,
        completions: &mut Completions<'_>,
    ) {
        let Some(proxied) = self.remove_request(handle) else {
            return;
        };
        let trailers = &mut self.trailers;
        if !proxied.is_answered {
            completions.proceed(proxied.token, |response, _pools| {
                let _ = match proxied.passes_answer_trailers && !trailer.is_empty() {
                    true => response.finish_passing(trailers.passing(trailer)),
                    false => response.finish(),
                };
                Flow::Done
            });
        }
        if let Some((chosen, _)) = proxied.current {
            self.upstreams.completed(chosen.id, report);
        }
    }

    /// There is no answer, or no rest of it: again elsewhere, or the client is told.
    pub(super) fn take_failure(
        &mut self,
        handle: Handle<Proxied>,
        failed: &ExchangeFailure,
        report: &ExchangeReport,
        completions: &mut Completions<'_>,
    ) {
        let now_ns = completions.now_ns();
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let mut failure = Failure::from(failed);
        let is_idle_tunnel = failed.phase == Phase::Tunnel && failed.is_timeout();
        let chosen = proxied.current.filter(|_| completions.is_logged());
        let relayed = chosen.map(|(chosen, _)| {
            let name = self.upstreams.name(chosen.id);
            Relayed::new(name, proxied.tries, times_ns(report))
        });
        let is_stale = failed.is_stale_connection();
        if let Some((chosen, _)) = proxied.current.take() {
            match is_idle_tunnel {
                true => self.upstreams.tunnel_idle(chosen.id),
                false => {
                    self.upstreams
                        .failed(chosen.id, failure, Some(failed), is_stale, now_ns);
                }
            }
        }
        let has_time = now_ns.saturating_sub(proxied.started_ns) < self.config.timeouts.total_ns;
        // Once it costs nothing: that connections end while they are kept is no sign of an outage.
        let is_free = is_stale && !proxied.met_stale && self.config.tries_max > 1;
        let paid_tries = proxied.tries - u32::from(proxied.met_stale);
        proxied.met_stale |= is_stale;
        let is_retried = !proxied.is_answering
            && has_time
            && may_retry(proxied.method, &proxied.head, failed, proxied.is_body_lost)
            && (is_free || paid_tries < self.config.tries_max && self.budget.spend());
        if is_retried {
            match self.begin_try(handle, now_ns, &completions.pools().blocks.clone()) {
                Ok(()) => return,
                // The first failure says more than that nobody else is left.
                Err(Failure::Local) => failure = Failure::Local,
                Err(_) => {}
            }
        }
        let Some(proxied) = self.remove_request(handle) else {
            return;
        };
        if let Some(relayed) = relayed {
            let relayed = match is_idle_tunnel {
                true => relayed,
                false => relayed.failed_by(failure),
            };
            completions.note(proxied.token, relayed);
        }
        if proxied.is_answering && !proxied.is_answered {
            // Cut, so that the client sees that something is missing.
            completions.proceed(proxied.token, |_, _| Flow::Done);
        } else if !proxied.is_answering {
            let is_quiet = self.config.quiet_errors;
            completions.respond(proxied.token, |response, _pools| {
                failure.answer(response, is_quiet);
            });
        }
    }

    /// The client has gone, or cannot be given the rest.
    pub(super) fn give_up(&mut self, handle: Handle<Proxied>) {
        if let Some(proxied) = self.remove_request(handle)
            && let Some((chosen, exchange)) = proxied.current
        {
            self.client.abort(exchange);
            self.upstreams.client_gone(chosen.id);
        }
    }
}
