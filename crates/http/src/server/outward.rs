//! The service's requests to other servers: events of their sockets, timers, and what they wait for.
//!
//! On the path: a socket that is no client's of ours may be one the service's [`Client`] has opened.
//! What happened to it is told to the service together with a way to go on with the requests that
//! wait for it.

use super::Server;
use crate::client::{Client, ExchangeEvent, ExchangeId, Listener};
use crate::completions::Completions;
use crate::connections::Connections;
use crate::server::Exchange;
use crate::service::Service;
use crate::streaming::has_room_for_part;
use millpond_io::{Driver, Event, ShardContext, SocketId};

/// Requests that are gone on with may ask others again: so often in one tick.
const ROUNDS_MAX: usize = 4;

/// All of a server but its client.
struct Hearing<'a, S> {
    service: &'a mut S,
    connections: &'a mut Connections,
    exchange: &'a mut Exchange,
    answered: &'a mut Vec<SocketId>,
}

impl<S: Service> Listener for Hearing<'_, S> {
    fn hear<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        id: ExchangeId,
        user: u64,
        event: ExchangeEvent<'_>,
    ) {
        let may_go_on = matches!(
            event,
            ExchangeEvent::Informational(_) | ExchangeEvent::Head(_) | ExchangeEvent::Body(_)
        );
        let completions = &mut Completions {
            connections: self.connections,
            exchange: self.exchange,
            pools: shard.pools,
            now_ns: shard.now_ns,
            answered: self.answered,
        };
        self.service.exchange_event(id, user, event, completions);
        if may_go_on {
            self.send_if_full(shard);
        }
    }
}

impl<S> Hearing<'_, S> {
    /// More of the same answer may follow at once: what would not find room in the output's block
    /// beside it leaves now.
    fn send_if_full<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let Some(connection) = self
            .answered
            .last()
            .and_then(|&socket| self.connections.get_mut(socket))
        else {
            return;
        };
        if !has_room_for_part(&connection.output) {
            self.exchange.send_output(connection, shard);
        }
    }
}

impl<S: Service> Server<S> {
    /// Does something with the client, if there is one, whose news the service hears.
    fn with_client<D: Driver, R>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        act: impl FnOnce(&Client, &mut ShardContext<'_, D>, &mut Hearing<'_, S>) -> R,
    ) -> Option<R> {
        let client = self.client.take()?;
        self.exchange.standing_lines.refresh(shard.now_ns);
        let mut hearing = Hearing {
            service: &mut self.service,
            connections: &mut self.connections,
            exchange: &mut self.exchange,
            answered: &mut self.answered,
        };
        let result = act(&client, shard, &mut hearing);
        self.client = Some(client);
        Some(result)
    }

    /// Something happened to a socket that is no client's of ours.
    #[inline(never)]
    pub(super) fn client_event<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        event: &Event<'_>,
    ) {
        self.with_client(shard, |client, shard, hearing| {
            client.event(shard, event, hearing);
        });
        self.go_on_with_answered(shard);
    }

    /// False: the timer is none of the client's.
    pub(super) fn client_timer_expired<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        user: u64,
    ) -> bool {
        let expired = self.with_client(shard, |client, shard, hearing| {
            client.timer_expired(shard, user, hearing)
        });
        let Some(Some(is_alarm)) = expired else {
            return false;
        };
        if is_alarm {
            self.complete(shard, S::alarm);
        } else {
            self.go_on_with_answered(shard);
        }
        true
    }

    /// Does what the service noted; what comes of it at once may lead to more.
    pub(super) fn pump_client<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if self.client.is_none() {
            return;
        }
        self.is_client_restless = true;
        for _ in 0..ROUNDS_MAX {
            let is_restless =
                self.with_client(shard, |client, shard, hearing| client.pump(shard, hearing));
            if self.answered.is_empty() {
                self.is_client_restless = is_restless == Some(true);
                return;
            }
            self.go_on_with_answered(shard);
        }
    }
}
