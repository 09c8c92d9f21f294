use super::*;

#[test]
fn each_margin_can_be_set() {
    let parse = |text: &str| text.parse::<Margins>();
    let usual = Margins::default();
    assert_eq!(
        parse("3%"),
        Ok(Margins {
            usual: 0.03,
            ..usual
        })
    );
    assert_eq!(parse("p99=20"), Ok(Margins { p99: 0.2, ..usual }));
    let all = Margins {
        usual: 0.025,
        p99: 0.1,
        counts: 0.005,
    };
    assert_eq!(parse("2.5 %, p99=10%,counts=0.5%"), Ok(all));
    assert_eq!(all.of(Quantity::PeakRss), 0.025);
    assert_eq!(all.of(Quantity::ResponseP99), 0.1);
    assert_eq!(all.of(Quantity::HeapCalls), 0.005);
    for wrong in ["", "0", "-1%", "101%", "nan", "p98=1%", "5%,", "p99="] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
