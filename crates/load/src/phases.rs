//! What ab tells of a request besides its time: connecting, and waiting for the first byte.
//!
//! On the path: `session` reports here, but only of requests that these times make a difference for:
//! the first one on a connection, and those whose answer came in more than one piece. For all others
//! connecting took nothing and the first byte came with the last, so waiting is the service time; the
//! whole is put together at the end, from the service clock and what is kept here.
//! Absent on purpose: requests that failed, as in the clocks.
use crate::outcome::InFlight;
use millpond_measure::histogram::LatencyHistogram;

/// The exceptions from the rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    connect: LatencyHistogram,
    /// Service of the requests that a connection was opened for.
    first_service: LatencyHistogram,
    /// The same with the time to connect.
    first_total: LatencyHistogram,
    /// Service of the requests whose answer came in pieces.
    pieces_service: LatencyHistogram,
    /// The part of it until the head was there.
    pieces_waiting: LatencyHistogram,
    /// Bytes of bodies.
    pub(crate) body_bytes: u64,
    /// Length of the first body.
    pub(crate) first_body_bytes: u64,
    /// Answers after which the connection closed.
    pub(crate) last_answers: u64,
    /// The Server field of the first answer.
    pub(crate) server: Option<String>,
}

impl Phases {
    /// A right answer to a counted request; `connect_ns` is 0 but for a connection's first.
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

    /// The first answer's head.
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

    /// From the write to the head of the answer.
    pub(crate) fn waiting(&self, service: &LatencyHistogram) -> LatencyHistogram {
        service.replaced(&self.pieces_service, &self.pieces_waiting)
    }

    /// Connecting and service.
    pub(crate) fn total(&self, service: &LatencyHistogram) -> LatencyHistogram {
        service.replaced(&self.first_service, &self.first_total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: what is put together from the exceptions is what recording each request would give.
        #[test]
        fn exceptions_make_the_whole(
            requests in prop::collection::vec(
                (1_u64..1 << 30, 0_u64..1 << 30, prop::option::weighted(0.3, 1_u64..1 << 25), any::<bool>()),
                0..80,
            ),
        ) {
            let mut phases = Phases::default();
            let mut service = LatencyHistogram::new();
            let mut expected = [(); 3].map(|()| LatencyHistogram::new());
            for (waiting_ns, rest_ns, connect_ns, is_in_pieces) in requests {
                let rest_ns = if is_in_pieces { rest_ns } else { 0 };
                let request = InFlight { written_ns: 7, ..InFlight::default() };
                let (head_ns, now_ns) = (7 + waiting_ns, 7 + waiting_ns + rest_ns);
                let connect_ns = connect_ns.unwrap_or(0);
                if connect_ns != 0 || head_ns != now_ns {
                    phases.exception(&request, connect_ns, head_ns, now_ns);
                }
                service.record(waiting_ns + rest_ns);
                expected[0].record(connect_ns);
                expected[1].record(waiting_ns);
                expected[2].record(connect_ns + waiting_ns + rest_ns);
            }
            let got = [phases.connect(&service), phases.waiting(&service), phases.total(&service)];
            for (got, expected) in got.iter().zip(&expected) {
                prop_assert!(got.bins().eq(expected.bins()));
            }
        }
    }

    #[test]
    fn the_server_is_the_first_answer_s() {
        let mut phases = Phases::default();
        phases.first_head(b"HTTP/1.1 200 OK\r\nDate: x\r\nsErver:  nginx/1.2 \r\n\r\n");
        let mut other = Phases::default();
        other.first_head(b"HTTP/1.1 200 OK\r\n\r\n");
        other.bodies(0, 2);
        other.bodies(12, 1);
        other.bodies(13, 2);
        assert_eq!(other.server.as_deref(), Some(""));
        phases.merge(&other);
        assert_eq!(phases.server.as_deref(), Some("nginx/1.2"));
        assert_eq!((phases.first_body_bytes, phases.body_bytes), (12, 38));
    }
}
