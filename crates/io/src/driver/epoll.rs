//! The epoll driver.
use super::*;
use millpond_mempool::PoolMode;

/// Readiness through epoll.
pub struct EpollDriver {
    counters: DriverCounters,
}

impl EpollDriver {
    /// A driver without sockets; make it on the thread that ticks it.
    pub fn new(_mode: PoolMode) -> Result<Self, IoError> {
        todo!()
    }
}

impl Driver for EpollDriver {
    fn name(&self) -> &'static str {
        "epoll"
    }
    fn listen(&mut self, _listener: Listener) -> Result<(), IoError> {
        todo!()
    }
    fn stop_listening(&mut self) {
        todo!()
    }
    fn connect(&mut self, _to: &Address) -> Result<SocketId, IoError> {
        todo!()
    }
    fn send(&mut self, _socket: SocketId, _data: Buffer) -> SendOutcome {
        todo!()
    }
    fn pause_receive(&mut self, _socket: SocketId) {
        todo!()
    }
    fn resume_receive(&mut self, _socket: SocketId) {
        todo!()
    }
    fn close(&mut self, _socket: SocketId) {
        todo!()
    }
    fn close_after_send(&mut self, _socket: SocketId) {
        todo!()
    }
    fn socket_count(&self) -> usize {
        todo!()
    }
    fn closing_count(&self) -> usize {
        todo!()
    }
    fn waker(&self) -> Waker {
        todo!()
    }
    fn now_ns(&self) -> u64 {
        todo!()
    }
    fn tick<H>(
        &mut self,
        _deadline_ns: Option<u64>,
        _pools: &mut ShardPools,
        _handler: H,
    ) -> Result<(), IoError>
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        todo!()
    }
    fn counters(&self) -> DriverCounters {
        self.counters
    }
    fn visit_pool_stats(&self, _visit: &mut dyn FnMut(PoolStats)) {
        todo!()
    }
}
