use super::*;

/// Goal: names and numbers are found with their groups, and survive the launcher's command line.
#[test]
fn users_are_found() {
    let passwd = "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/var/www:/bin/false\n";
    let group = "root:x:0:\nwww:x:33:\nssl:x:110:pg,www\nother:x:111:wwwx\n";
    let www = Identity::in_tables("www", passwd, group).unwrap();
    assert_eq!(
        (www.uid, www.gid, www.groups.clone()),
        (33, 33, vec![33, 110])
    );
    assert_eq!(Identity::in_tables("33", passwd, group), Some(www.clone()));
    assert_eq!(Identity::from_word(&www.to_word()), Some(www));
    assert_eq!(Identity::in_tables("nobody-here", passwd, group), None);
    assert_eq!(Identity::find("root").unwrap().uid, 0);
    assert!(
        Identity::find("no-such-user")
            .unwrap_err()
            .contains("no-such-user")
    );
}
