//! Requests and their server as `load`, `compare` and `profile` describe them, with the same flags.

use super::Failure;
use super::expectations::ExpectFlags;
use super::reach::ReachFlags;
use super::requests::{RequestFlags, Urls};
use super::script::ScriptFlags;
use clap::Args;
use millpond_io::Address;
use millpond_lab::ServerRequests;
use millpond_load::{RequestPlan, Target, Workload};
use std::net::SocketAddr;
use std::time::Duration;

/// A handshake that takes longer has failed: as generous as the time that an answer may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Draws follow from it: every candidate is asked the same.
const DRAW_SEED: u64 = 1;

/// The flags, of commands that start a server of the user's.
#[derive(Args, Debug)]
pub(super) struct TargetRequestFlags {
    /// Where your server answers; several URLs of it are asked in turn
    #[arg(long, value_name = "URL")]
    pub(super) url: Vec<String>,
    #[command(flatten)]
    asked: RequestFlags,
    #[command(flatten)]
    expect: ExpectFlags,
    #[command(flatten)]
    script: ScriptFlags,
    #[command(flatten)]
    reach: ReachFlags,
}

/// Everything but lengths, rates and numbers of connections.
pub(super) struct Description<'a> {
    pub(super) urls: &'a Urls,
    pub(super) asked: &'a RequestFlags,
    pub(super) expect: &'a ExpectFlags,
    pub(super) reach: &'a ReachFlags,
    pub(super) has_script: bool,
    pub(super) handshake_timeout_ns: u64,
}

impl Description<'_> {
    /// The plan for `workload` of `path`. No name is looked up yet and no script read: the rest is checked first.
    pub(super) fn plan(&self, workload: Workload, path: String) -> Result<RequestPlan, Failure> {
        let nowhere = Address::from(SocketAddr::from(([127, 0, 0, 1], 1)));
        let first = &self.urls.first;
        let target = Target {
            addresses: [nowhere].into(),
            // A script finds the field in its table, and the URL's server beside it.
            host: match self.has_script {
                true => first.host_field.clone(),
                false => self.asked.host_field(self.urls)?,
            },
            path,
        };
        let mut plan = RequestPlan::new(target, workload);
        plan.tls = self.reach.tls(first, self.handshake_timeout_ns)?;
        plan.is_verified = self.reach.is_verified();
        plan.addresses = self.reach.address_use();
        plan.requests_per_connection = self.asked.says_close().then_some(1);
        self.expect.apply(&mut plan);
        Ok(plan)
    }
}

impl TargetRequestFlags {
    /// The first flag that describes requests of a server of the user's, besides --url.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let script = self.script.is_given().then_some("--script");
        let other = self.asked.first_given().or(self.expect.first_given());
        other.or(script).or(self.reach.first_given())
    }

    /// Whether requests have a URL.
    pub(super) fn has_url(&self) -> bool {
        !self.url.is_empty() || self.asked.urls.is_some()
    }

    /// The requests, with `urls` instead of --url.
    pub(super) fn requests(&self, urls: &[String]) -> Result<ServerRequests, Failure> {
        let parsed = self.asked.parse_urls(urls)?;
        let mut asked = self.asked.clone();
        asked.header.extend(self.asked.authorization(urls)?);
        let body = asked.read_body()?;
        let workload = match self.script.is_given() {
            true => asked.workload_of_script(&parsed, body)?,
            false => asked.workload(&parsed, DRAW_SEED, &body)?,
        };
        let script = urls.first().map_or("", String::as_str);
        let script = self.script.config(script, &asked, &workload, &[])?;
        let description = Description {
            urls: &parsed,
            asked: &asked,
            expect: &self.expect,
            reach: &self.reach,
            has_script: script.is_some(),
            handshake_timeout_ns: u64::try_from(HANDSHAKE_TIMEOUT.as_nanos()).unwrap_or(u64::MAX),
        };
        let mut plan = description.plan(workload, parsed.first.path.clone())?;
        plan.script = script;
        plan.target.addresses = self.reach.addresses(&parsed.first)?;
        Ok(ServerRequests {
            text: asked.shown_url(urls),
            plan,
            is_host_of_url: !asked.has_host(),
        })
    }
}
