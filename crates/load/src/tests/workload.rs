use super::*;
use millpond_mempool::PoolMode;
use std::collections::HashSet;

fn requests(workload: Workload) -> Requests {
    let addresses = ["127.0.0.1:80".parse().unwrap()].into();
    let target = Target {
        addresses,
        host: "pond".into(),
        path: "/v0/entity".into(),
    };
    Requests::new(&LoadConfig::new(target, workload)).unwrap()
}

fn text(requests: &Requests, number: u64) -> Vec<u8> {
    let pool = BlockPool::new("test", PoolMode::Off);
    let mut out = Buffer::new();
    requests.append(number, &pool, &mut out, 1).unwrap();
    out.to_vec()
}

#[test]
fn static_requests_are_encoded_once_and_equal() {
    let requests = requests(Workload::Static {
        method: Method::Post,
        fields: vec![("X-A".into(), "b".into())],
        body: b"body".to_vec(),
    });
    let wire = text(&requests, 0);
    assert_eq!(
        String::from_utf8(wire.clone()).unwrap(),
        "POST /v0/entity HTTP/1.1\r\nHost: pond\r\nX-A: b\r\nContent-Length: 4\r\n\r\nbody"
    );
    assert_eq!(text(&requests, 77), wire);
    assert!(requests.expected(0, 0).is_none());
}

/// Goal: K requests write each of K keys exactly once, with the value GET will check.
#[test]
fn puts_write_each_key_once_with_the_value_gets_expect() {
    let puts = requests(Workload::EntityPut {
        keys: 500,
        value_bytes: 32,
        seed: 7,
    });
    let gets = requests(Workload::EntityGet {
        keys: 500,
        value_bytes: 32,
        seed: 7,
    });
    let mut ids = HashSet::new();
    for number in 0..500 {
        let wire = text(&puts, number);
        let head = format!(
            "PUT /v0/entity?id=k{number:09} HTTP/1.1\r\nHost: pond\r\nContent-Length: 32\r\n\r\n"
        );
        assert!(
            wire.starts_with(head.as_bytes()),
            "{}",
            String::from_utf8_lossy(&wire)
        );
        let (values, _) = gets.expected(0, 0).unwrap().value().unwrap();
        assert!(values.matches(number, 0, &wire[head.len()..]));
        ids.insert(head);
    }
    assert_eq!(ids.len(), 500);
}

/// Goal: reads are uniform (chi-square over 100 keys) and repeat with the seed.
#[test]
fn gets_are_uniform_and_repeatable() {
    let workload = |seed| Workload::EntityGet {
        keys: 100,
        value_bytes: 8,
        seed,
    };
    let gets = requests(workload(1));
    let mut counts = [0f64; 100];
    for number in 0..100_000 {
        let wire = String::from_utf8(text(&gets, number)).unwrap();
        let id = wire
            .split("id=k")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        let key: usize = id.parse().unwrap();
        assert_eq!(
            gets.expected(number, 0).unwrap().value().unwrap().1,
            key as u64
        );
        counts[key] += 1.0;
    }
    let chi_square: f64 = counts
        .iter()
        .map(|count| (count - 1_000.0).powi(2) / 1_000.0)
        .sum();
    // 99 degrees of freedom: outside 50..170 only once in a hundred thousand seeds.
    assert!((50.0..170.0).contains(&chi_square), "{chi_square}");
    assert_eq!(text(&gets, 9), text(&requests(workload(1)), 9));
    assert!((0..50).any(|number| text(&gets, number) != text(&requests(workload(2)), number)));
}

#[test]
fn empty_values_and_single_keys_work() {
    let puts = requests(Workload::EntityPut {
        keys: 1,
        value_bytes: 0,
        seed: 0,
    });
    assert!(text(&puts, 5).ends_with(b"Content-Length: 0\r\n\r\n"));
    let gets = requests(Workload::EntityGet {
        keys: 1,
        value_bytes: 0,
        seed: 0,
    });
    assert_eq!(gets.expected(12, 0).unwrap().value().unwrap().1, 0);
}

fn mixed(mix: RequestMix) -> Result<Requests, LoadError> {
    let addresses = ["127.0.0.1:80".parse().unwrap()].into();
    let target = Target {
        addresses,
        host: "pond".into(),
        path: "/".into(),
    };
    Requests::new(&LoadConfig::new(target, Workload::Mix(mix)))
}

/// Goal: a template stands in the path, the fields and the body; the length said is the body's.
#[test]
fn templates_are_whole_requests() {
    let class = RequestClass {
        method: Method::Post,
        fields: vec![("X-Number".into(), "n{seq}".into())],
        body: RequestBody::Template(b"{\"key\":\"{key}\",\"n\":{seq}}".to_vec()),
        ..RequestClass::get("post", "/a/{seq}?k={key}")
    };
    let mix = RequestMix {
        keys: Some(KeySpace {
            distribution: KeyDistribution::Sequential,
            prefix: "user".into(),
            digits: Some(3),
            ..KeySpace::uniform(100)
        }),
        ..RequestMix::of(vec![class])
    };
    let requests = mixed(mix).unwrap();
    for (number, length) in [(8, 23), (123, 25)] {
        let key = number % 100;
        let expected = format!(
            "POST /a/{number}?k=user{key:03} HTTP/1.1\r\nHost: pond\r\nX-Number: n{number}\r\n\
             Content-Length: {length}\r\n\r\n{{\"key\":\"user{key:03}\",\"n\":{number}}}"
        );
        assert_eq!(
            String::from_utf8(text(&requests, number)).unwrap(),
            expected
        );
    }
}

/// Goal: values of several sizes are announced as long as they are, and expected so.
#[test]
fn values_of_several_sizes_are_announced_correctly() {
    let class = |name: &str, method, body, expects_value| RequestClass {
        method,
        body,
        expects_value,
        ..RequestClass::get(name, "/v0/entity?id={key}")
    };
    let mix = RequestMix {
        keys: Some(KeySpace::uniform(50)),
        value_bytes: 10..=3_000,
        ..RequestMix::of(vec![
            class("read", Method::Get, RequestBody::Template(Vec::new()), true),
            class("update", Method::Put, RequestBody::Value, false),
            class("noise", Method::Put, RequestBody::Generated, false),
        ])
    };
    let requests = mixed(mix).unwrap();
    let mut lengths = std::collections::HashSet::new();
    let (mut reads, mut writes) = (0, 0);
    for number in 0..3_006 {
        let wire = text(&requests, number);
        let head_end = wire
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap()
            + 4;
        let (head, body) = (
            String::from_utf8(wire[..head_end].to_vec()).unwrap(),
            &wire[head_end..],
        );
        if head.starts_with("GET") {
            reads += 1;
            let (values, key) = requests.expected(number, 0).unwrap().value().unwrap();
            assert!(head.contains(&format!("id=k{key:09} ")), "{head}");
            assert!((10..=3_000).contains(&values.len_of(key)));
            continue;
        }
        writes += 1;
        assert!(requests.expected(number, 1).is_none());
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{head}"
        );
        lengths.insert(body.len());
    }
    assert_eq!((reads, writes), (1_002, 2_004));
    assert!(lengths.len() > 400 && lengths.iter().all(|length| (10..=3_000).contains(length)));
}

/// Goal: inserted keys are new, dense and in proportion; the newest are read only when written.
#[test]
fn inserted_keys_are_new_and_read_later() {
    let class = |name: &str, weight, method, key| RequestClass {
        weight,
        method,
        key,
        ..RequestClass::get(name, "/v0/entity?id={key}")
    };
    let mix = RequestMix {
        keys: Some(KeySpace {
            distribution: KeyDistribution::Latest { exponent: 0.99 },
            ..KeySpace::uniform(1_000)
        }),
        ..RequestMix::of(vec![
            class("read", 95, Method::Get, KeyUse::Drawn),
            class("insert", 5, Method::Put, KeyUse::New),
        ])
    };
    let requests = mixed(mix).unwrap();
    let mut written = 1_000;
    let mut newest_read = 0;
    let mut inserted = std::collections::BTreeSet::new();
    for number in 0..20_000 {
        let wire = String::from_utf8(text(&requests, number)).unwrap();
        let id: u64 = wire.split("id=k").nth(1).unwrap()[..9].parse().unwrap();
        if wire.starts_with("PUT") {
            assert!(inserted.insert(id), "{id} is inserted twice");
        } else {
            newest_read = newest_read.max(id);
            // A block of 1,000 requests later all of its 50 inserts were sent.
            assert!(
                id < written,
                "request {number} reads {id} before it is written"
            );
        }
        if number % 1_000 == 999 {
            written = 1_000 + (number + 1) / 20;
            assert!(inserted.iter().copied().eq(1_000..written));
        }
    }
    assert!(newest_read > 1_800, "{newest_read}");
}

#[test]
fn impossible_mixes_are_refused() {
    let get = || RequestClass::get("a", "/{key}");
    let with_keys = |keys: KeySpace| RequestMix {
        keys: Some(keys),
        ..RequestMix::of(vec![get()])
    };
    for (mix, part) in [
        (RequestMix::of(vec![]), "0 kinds"),
        (RequestMix::of(vec![get()]), "--keys"),
        (with_keys(KeySpace::uniform(0)), "at least one"),
        (
            with_keys(KeySpace {
                prefix: "a b".into(),
                ..KeySpace::uniform(1)
            }),
            "key-prefix",
        ),
        (
            with_keys(KeySpace {
                digits: Some(2),
                ..KeySpace::uniform(101)
            }),
            "take 3 digits",
        ),
        (
            RequestMix::of(vec![RequestClass { weight: 0, ..get() }]),
            "weights",
        ),
        (
            RequestMix::of(vec![RequestClass {
                is_second: true,
                ..get()
            }]),
            "follows",
        ),
        (
            RequestMix::of(vec![RequestClass::get("a", "/{rand:2:1}")]),
            "lower first",
        ),
    ] {
        let error = mixed(mix).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
