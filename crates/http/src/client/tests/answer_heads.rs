use super::*;
use proptest::prelude::*;

proptest! {
    /// Goal: whatever was read before, of whichever upstream, a head and its fields are what
    /// parsing it alone says, cut ones, bad ones and those with a response behind them included.
    #[test]
    fn what_is_known_is_what_parsing_says(
        steps in proptest::collection::vec((0..6_u64, 0..10_usize, 0..3_usize), 0..60),
    ) {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(KNOWN_BYTES_MAX));
        let heads = [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.0 404 No\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
            "HTTP/1.1 200 OK\r\nContent-Len",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
            &long,
        ];
        let limits = Limits::default();
        let mut known = KnownResponseHeads::default();
        for (from, head, rest) in steps {
            let bytes = format!("{}{}", heads[head], ["", "hello", "HTTP/1.1 "][rest]);
            let mut fields = HeadFields::new();
            let expected = parse_response_head(bytes.as_bytes(), &limits, &mut fields);
            let found = known.read(PoolKey::from_bits(from), bytes.as_bytes(), &limits);
            prop_assert_eq!(&found, &expected, "{}", bytes);
            if matches!(found, Ok(Parsed::Complete(_))) {
                prop_assert_eq!(known.fields().spans(), fields.spans());
            }
        }
    }
}
