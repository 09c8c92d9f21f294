use super::*;
use proptest::prelude::*;

proptest! {
    /// Goal: the sums made from the exceptions equal those of recording each request.
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
