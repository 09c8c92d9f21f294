use super::*;

fn machine(virtualisation: Option<&str>) -> Environment {
    Environment {
        virtualisation: virtualisation.map(str::to_owned),
        ..Environment::default()
    }
}

/// Goal: processors are kept awake only on request or in a virtual machine; a request that cannot
/// be met is reported.
#[test]
fn processors_are_kept_awake_where_that_is_wanted() {
    let is_allowed = Awake::ask().is_ok();
    let held = |wanted, virtualisation| {
        Awake::hold(wanted, &machine(virtualisation)).map(|awake| awake.is_some())
    };
    for place in [None, Some("container"), Some("virtual machine (X)")] {
        assert!(!held(IdleCpus::Asleep, place).unwrap());
        assert_eq!(held(IdleCpus::Awake, place).is_ok(), is_allowed);
    }
    assert!(!held(IdleCpus::Auto, None).unwrap());
    assert!(!held(IdleCpus::Auto, Some("container")).unwrap());
    for place in ["virtual machine (X)", "container in a virtual machine"] {
        assert_eq!(held(IdleCpus::Auto, Some(place)).unwrap(), is_allowed);
    }
}
