use super::*;

/// Goal: every combination has the meaning of its parts, and only the usual one is usual.
#[test]
fn a_manner_is_its_parts() {
    for version in [Version::Http10, Version::Http11] {
        for method in [Method::Get, Method::Head, Method::Post] {
            for (keep_alive, is_draining) in
                [(true, false), (true, true), (false, false), (false, true)]
            {
                let head = RequestHead {
                    method,
                    version,
                    keep_alive,
                    ..RequestHead::EMPTY
                };
                let manner = ResponseFraming::of(&head, is_draining);
                let closes = !keep_alive || is_draining;
                let persistence = match version {
                    _ if closes => Persistence::Close,
                    Version::Http10 => Persistence::KeepAlive,
                    Version::Http11 => Persistence::Silent,
                };
                assert_eq!(manner.persistence(), persistence);
                assert_eq!(manner.closes(), closes);
                assert_eq!(manner.is_last_of_client(), !keep_alive);
                assert_eq!(manner.is_head(), method == Method::Head);
                assert_eq!(manner.is_old_version(), version == Version::Http10);
                let is_usual = version == Version::Http11 && !closes && !manner.is_head();
                assert_eq!(manner.is_usual(), is_usual);
                assert_eq!(manner.closing().persistence(), Persistence::Close);
                assert_eq!(manner.closing().is_head(), manner.is_head());
                let unread = manner.closing_if_answered(true);
                assert!(!unread.is_usual() && unread.answered().closes());
                assert_eq!(unread.closes(), closes);
                assert_eq!(unread.closing_if_answered(false), manner);
                assert_eq!(manner.answered(), manner);
            }
        }
    }
}
