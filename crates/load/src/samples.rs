//! Single requests, for outputs with a row of each: `--print requests`, ab's `-g`.
//!
//! Only if asked for: `connection` shows each response here, and `worker` the kernel's stamp of those that have one.
//! Samples beyond the room are counted only.

use millpond_measure::histogram::LatencyHistogram;

use crate::listener::Answered;
use crate::outcome::InFlight;

/// Requests that are kept at most by all threads together: some 200 MB.
pub const SAMPLES_MAX: usize = 4_000_000;

/// A successful request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestSample {
    /// When it was written.
    pub written_ns: u64,
    /// From its intended write to the actual one.
    pub slip_ns: u64,
    /// How long connecting took, if the connection was opened for it; else 0. It came before the
    /// write.
    pub connect_ns: u64,
    /// From the write to the head of the response.
    pub waiting_ns: u64,
    /// From the write to the last byte.
    pub service_ns: u64,
    /// From the write to the last byte's arrival in the kernel, if that was stamped.
    pub kernel_service_ns: Option<u64>,
}

/// Those of some threads.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// In no order.
    pub kept: Vec<RequestSample>,
    /// How many found no room.
    pub dropped: u64,
    room: usize,
}

impl Samples {
    pub(crate) fn new(room: usize) -> Self {
        Self {
            room,
            ..Self::default()
        }
    }

    /// A response is complete.
    pub(crate) fn answered(&mut self, answered: &Answered<'_>) {
        let request = answered.request;
        if !request.counted || !answered.is_right {
            return;
        }
        if self.kept.len() == self.room {
            self.dropped += 1;
            return;
        }
        let written_ns = request.written_ns;
        self.kept.push(RequestSample {
            written_ns,
            slip_ns: written_ns.saturating_sub(request.intended_ns),
            connect_ns: answered.connect_ns,
            waiting_ns: answered.head_ns.saturating_sub(written_ns),
            service_ns: answered.now_ns - written_ns,
            kernel_service_ns: None,
        });
    }

    /// The kernel stamped the last response.
    pub(crate) fn stamped(&mut self, request: &InFlight, kernel_service_ns: u64) {
        // Without room it is not the last one kept.
        if let Some(last) = self.kept.last_mut()
            && last.written_ns == request.written_ns
            && self.dropped == 0
        {
            last.kernel_service_ns = Some(kernel_service_ns);
        }
    }

    /// Adds those of another thread.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.kept.append(&mut other.kept);
        self.dropped += other.dropped;
    }
}

// The clock of whole batches: what wrk2 measures with `-B`.

/// A batch whose responses are coming. Responses come in the order of their requests, so the requests of
/// a batch are those in a row that were written at the same moment.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    written_ns: u64,
    intended_ns: u64,
    /// All of its responses so far count and are right.
    is_whole: bool,
}

/// The batches of one thread.
#[derive(Debug)]
pub(crate) struct Batches {
    open: Vec<Open>,
    pub(crate) clocks: BatchClocks,
}

/// Times of batches.
#[derive(Clone, Debug, Default)]
pub struct BatchClocks {
    /// From the intended start of the first request to the last byte of the last response.
    pub response: LatencyHistogram,
    /// The same from the write.
    pub service: LatencyHistogram,
}

impl BatchClocks {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
    }
}

impl Batches {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            open: vec![Open::default(); connections],
            clocks: BatchClocks::default(),
        }
    }

    /// A response on this connection is complete.
    pub(crate) fn answered(&mut self, index: u32, answered: &Answered<'_>) {
        let request = answered.request;
        let open = &mut self.open[index as usize];
        if open.written_ns != request.written_ns {
            *open = Open {
                written_ns: request.written_ns,
                intended_ns: request.intended_ns,
                is_whole: true,
            };
        }
        open.is_whole &= request.counted && answered.is_right;
        let is_last = answered.next_written_ns != Some(request.written_ns);
        if is_last && open.is_whole {
            let (intended_ns, written_ns) = (open.intended_ns, open.written_ns);
            self.clocks.response.record(answered.now_ns - intended_ns);
            self.clocks.service.record(answered.now_ns - written_ns);
        }
    }
}

// What ab reports of a request besides its time: connecting, and waiting for the first byte.

/// The exceptions from the rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    connect: LatencyHistogram,
    /// Service of the requests that a connection was opened for.
    first_service: LatencyHistogram,
    /// The same with the time to connect.
    first_total: LatencyHistogram,
    /// Service of the requests whose response came in pieces.
    pieces_service: LatencyHistogram,
    /// The part of it until the head was there.
    pieces_waiting: LatencyHistogram,
    /// Bytes of bodies.
    pub(crate) body_bytes: u64,
    /// Length of the first body.
    pub(crate) first_body_bytes: u64,
    /// Responses after which the connection closed.
    pub(crate) last_answers: u64,
    /// The Server field of the first response.
    pub(crate) server: Option<String>,
}

impl Phases {
    /// A right response to a counted request; `connect_ns` is 0 except for a connection's first.
    #[cold]
    pub(crate) fn exception(
        &mut self,
        request: &InFlight,
        connect_ns: u64,
        head_ns: u64,
        now_ns: u64,
    ) {
        let service_ns = now_ns - request.written_ns;
        if connect_ns != 0 {
            self.connect.record(connect_ns);
            self.first_service.record(service_ns);
            self.first_total.record(connect_ns + service_ns);
        }
        if head_ns != now_ns {
            self.pieces_service.record(service_ns);
            let waiting_ns = head_ns.saturating_sub(request.written_ns);
            self.pieces_waiting.record(waiting_ns);
        }
    }

    /// The first response's head.
    #[cold]
    pub(crate) fn first_head(&mut self, head: &[u8]) {
        let head = String::from_utf8_lossy(head);
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        let server = fields.find(|(name, _)| name.eq_ignore_ascii_case("server"));
        self.server = Some(server.map_or(String::new(), |(_, value)| value.trim().to_owned()));
    }

    /// So many bodies are complete, each of so many bytes.
    #[inline]
    pub(crate) fn bodies(&mut self, bytes: u64, count: u64) {
        if self.body_bytes == 0 {
            self.first_body_bytes = bytes;
        }
        self.body_bytes += bytes * count;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.connect.merge(&other.connect);
        self.first_service.merge(&other.first_service);
        self.first_total.merge(&other.first_total);
        self.pieces_service.merge(&other.pieces_service);
        self.pieces_waiting.merge(&other.pieces_waiting);
        if self.body_bytes == 0 {
            self.first_body_bytes = other.first_body_bytes;
        }
        self.body_bytes += other.body_bytes;
        self.last_answers += other.last_answers;
        if self.server.is_none() {
            self.server.clone_from(&other.server);
        }
    }

    /// Times to connect: of each request, most of which took none.
    pub(crate) fn connect(&self, service: &LatencyHistogram) -> LatencyHistogram {
        let mut connect = self.connect.clone();
        connect.record_many(0, service.count() - self.connect.count());
        connect
    }

    /// From the write to the head of the response.
    pub(crate) fn waiting(&self, service: &LatencyHistogram) -> LatencyHistogram {
        service.replaced(&self.pieces_service, &self.pieces_waiting)
    }

    /// Connecting and service.
    pub(crate) fn total(&self, service: &LatencyHistogram) -> LatencyHistogram {
        service.replaced(&self.first_service, &self.first_total)
    }
}

#[cfg(test)]
#[path = "tests/samples.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/batches.rs"]
mod batches_tests;

#[cfg(test)]
#[path = "tests/phases.rs"]
mod phases_tests;
