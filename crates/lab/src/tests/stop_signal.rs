use super::*;

#[test]
fn signals_are_found_by_their_names() {
    for signal in StopSignal::ALL {
        assert_eq!(StopSignal::named(signal.name()), Some(signal));
    }
    assert_eq!(StopSignal::named("sigquit"), Some(StopSignal::Quit));
    assert_eq!(StopSignal::named("KILL"), None);
}
