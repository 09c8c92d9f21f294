//! Late answers.
use crate::response::Response;
use crate::service::RequestToken;
use millpond_io::ShardPools;

/// The way back for requests that were [`crate::Flow::Pending`].
pub struct Completions<'a> {
    pools: &'a mut ShardPools,
}

impl Completions<'_> {
    /// Answers the request behind the token. False: its connection is gone, or it was answered.
    pub fn respond(
        &mut self,
        _token: RequestToken,
        _answer: impl FnOnce(&mut Response<'_>, &mut ShardPools),
    ) -> bool {
        todo!("{:?}", self.pools.mode)
    }
}
