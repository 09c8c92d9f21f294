use super::*;

/// Goal: every key reads back as the measure it came from, and no two share a key.
#[test]
fn keys_are_unique_and_read_back() {
    let mut seen = std::collections::BTreeSet::new();
    for &quantity in Quantity::ALL {
        for operation in Operation::ALL.map(Some).into_iter().chain([None]) {
            let measure = Measure {
                quantity,
                operation,
            };
            assert!(seen.insert(measure.to_string()), "{measure} twice");
            assert_eq!(measure.to_string().parse(), Ok(measure));
        }
    }
}

/// Goal: the contract of units in keys holds for every quantity.
#[test]
fn keys_end_in_their_unit() {
    for &quantity in Quantity::ALL {
        let key = quantity.key();
        match quantity.unit() {
            Unit::PerSecond => assert!(key.ends_with("_per_s"), "{key}"),
            Unit::Nanoseconds => assert!(key.ends_with("_ns"), "{key}"),
            Unit::Bytes => assert!(key.contains("_bytes"), "{key}"),
            Unit::Count => {
                assert!(
                    key.ends_with("_per_request") || key.ends_with("_count"),
                    "{key}"
                );
            }
            Unit::Ratio => assert!(key.ends_with("_ratio"), "{key}"),
            Unit::Custom(_) => unreachable!("{key} is ours"),
        }
    }
}

/// Goal: a quantity of the user's is a measure like ours, and reads back.
#[test]
fn custom_measures_read_back() {
    let custom = CustomQuantity::new("p95", "ms", Direction::LowerIsBetter).expect("words");
    let measure = Measure::of(Operation::Request, Quantity::Custom(custom));
    assert_eq!(measure.to_string(), "request.custom:p95:ms:lower");
    assert_eq!(measure.to_string().parse(), Ok(measure));
    assert_eq!(measure.quantity.unit().format(1.25), "1.25 ms");
}

#[test]
fn unknown_keys_are_named() {
    let error = "put.speed".parse::<Measure>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"put.speed\" is not a measure this version knows"
    );
    assert!("walk.throughput_per_s".parse::<Measure>().is_err());
}
