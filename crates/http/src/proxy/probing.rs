//! Health checks: one small request to each upstream, again and again.
//!
//! On the path: the shard's alarm begins them, their ends are told to `upstreams`. They travel like
//! any request, over the same connections.
//!
//! Absent on purpose: looking at the answer's body, and sharing between shards what was found: a shard
//! that cannot reach an upstream must not use it, whatever the others say.

use super::health::ProbePolicy;
use super::service::{PROBE_USER, Proxy};
use crate::client::{AnswerHead, ExchangeEvent, ExchangeId, OutgoingRequest};
use crate::head_text::{Authority, Field, FieldName, FieldValue};
use crate::log::{self, LogLevel};
use crate::method::Method;
use millpond_io::monotonic_ns;
use millpond_io::proxy_protocol::ProxyHeadText;
use millpond_mempool::{BlockPool, PoolError};

impl Proxy {
    /// Begins the probes that are due, and plans the next.
    pub(super) fn begin_probes(&mut self, now_ns: u64, blocks: &BlockPool) {
        let Some(policy) = self.config.probe.as_ref() else {
            return;
        };
        let mut next_ns = now_ns.saturating_add(policy.interval_ns);
        for upstream in self.upstreams.iter_mut() {
            if upstream.probe_due_ns > now_ns {
                next_ns = next_ns.min(upstream.probe_due_ns);
                continue;
            }
            upstream.probe_due_ns = now_ns.saturating_add(policy.interval_ns);
            if upstream.probe.is_some() {
                continue;
            }
            let preface = upstream.proxy_protocol().map(ProxyHeadText::own);
            let begun = probe(policy, upstream.host(), preface, blocks)
                .and_then(|request| self.client.begin(upstream.key, request, blocks));
            // Without memory here, nothing is found out about the upstream.
            upstream.probe = begun.ok();
            upstream.is_probe_good = false;
        }
        self.client.alarm_at(next_ns);
    }

    pub(super) fn probe_event(&mut self, id: ExchangeId, event: ExchangeEvent<'_>) {
        let Some(upstream) = self.upstreams.by_probe(id) else {
            return;
        };
        let is_success = match event {
            ExchangeEvent::Head(answer) => {
                upstream.is_probe_good = is_good(&answer);
                return;
            }
            ExchangeEvent::Whole { head, .. } => is_good(&head),
            ExchangeEvent::End { .. } => upstream.is_probe_good,
            ExchangeEvent::Failed { failure, .. } if failure.is_local() => {
                // No place for the probe: it says nothing.
                upstream.probe = None;
                return;
            }
            ExchangeEvent::Failed { .. } => false,
            _ => return,
        };
        let id = upstream.id();
        let Some(policy) = self.config.probe.as_ref() else {
            upstream.probe = None;
            return;
        };
        if self.upstreams.probed(id, is_success, policy) {
            self.upstreams.publish(&self.client, monotonic_ns());
            if let Some((name, is_down)) = self.upstreams.describe(id) {
                let (level, state) = match is_down {
                    true => (LogLevel::Warn, "is down: its health checks fail"),
                    false => (LogLevel::Info, "is up again: its health checks succeed"),
                };
                log::write(level, format_args!("upstream {name} {state}"));
            }
        }
    }
}

fn is_good(answer: &AnswerHead<'_>) -> bool {
    matches!(answer.status().code(), 200..400)
}

/// The request of one probe.
fn probe(
    policy: &ProbePolicy,
    host: Authority<'_>,
    preface: Option<ProxyHeadText>,
    blocks: &BlockPool,
) -> Result<OutgoingRequest, PoolError> {
    const USER_AGENT: Field<'_> = (
        FieldName::USER_AGENT,
        FieldValue::from_static("millpond-probe"),
    );
    let target = policy.target();
    let mut request = OutgoingRequest::new(blocks, Method::Get, target, host, &[USER_AGENT])?;
    if let Some(preface) = preface {
        request.set_proxy_head(blocks, &preface)?;
    }
    request.timeouts.total_ns = policy.timeout_ns;
    request.user = PROBE_USER;
    Ok(request)
}
