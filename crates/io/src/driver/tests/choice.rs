use super::*;
use rustix::io::Errno;

/// Goal: the requested driver is chosen, or an error; auto always finds one and reports the reason.
#[test]
fn a_choice_is_kept_or_explained() {
    let epoll = DriverChoice::Epoll.choose().unwrap();
    assert_eq!(epoll.kind, DriverKind::Epoll);
    let auto = DriverChoice::Auto.choose().unwrap();
    match probe() {
        Ok(features) => {
            assert_eq!((auto.kind, auto.features), (DriverKind::Uring, features));
            assert_eq!(DriverChoice::Uring.choose().unwrap(), auto);
            assert!(
                auto.to_string().starts_with("uring driver, with "),
                "{auto}"
            );
        }
        Err(why) => {
            assert_eq!(auto.kind, DriverKind::Epoll);
            assert!(auto.to_string().contains(&why.to_string()), "{auto}");
            assert_eq!(
                DriverChoice::Uring.choose(),
                Err(IoError::UringUnavailable(why))
            );
        }
    }
}

/// Goal: whatever keeps io_uring away, auto goes on with epoll and reports the reason, io_uring by name is an error
/// with the same reason, and epoll by name does not probe at all.
#[test]
fn without_io_uring_there_is_epoll_and_the_reason() {
    let error = Errno::PERM;
    for why in [
        UringUnavailable::Absent,
        UringUnavailable::Emulated,
        UringUnavailable::Disabled { value: 2 },
        UringUnavailable::Forbidden { error },
        UringUnavailable::TooOld { lacks: "accept" },
        UringUnavailable::OutOfResources { error },
        UringUnavailable::Refused { error },
    ] {
        let auto = DriverChoice::Auto.choose_by(|| Err(why)).unwrap();
        assert_eq!(auto.kind, DriverKind::Epoll);
        assert_eq!(auto.features, DriverFeatures::default());
        assert_eq!(auto.to_string(), format!("epoll driver, because {why}"));
        let by_name = DriverChoice::Uring.choose_by(|| Err(why));
        assert_eq!(by_name, Err(IoError::UringUnavailable(why)));
    }
    let by_name = DriverChoice::Epoll.choose_by(|| panic!("nobody asked for io_uring"));
    assert_eq!(by_name.unwrap().kind, DriverKind::Epoll);
}

/// Goal: the names are those of the documentation, and others are refused with the list.
#[test]
fn choices_have_names() {
    for (text, choice) in [
        ("auto", DriverChoice::Auto),
        ("uring", DriverChoice::Uring),
        ("epoll", DriverChoice::Epoll),
    ] {
        assert_eq!(text.parse(), Ok(choice));
    }
    let error = "kqueue".parse::<DriverChoice>().unwrap_err().to_string();
    assert!(error.contains("auto, uring or epoll"), "{error}");
    let error = IoError::UringUnavailable(UringUnavailable::Absent).to_string();
    assert!(error.contains("epoll driver works everywhere"), "{error}");
}
