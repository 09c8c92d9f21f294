use super::*;

const BITS: u64 = 0x0123_4567_89ab_cdef;
const OURS: &str = "millpond-0123456789abcdef";

/// Goal: no two are the same, and each is a token.
#[test]
fn names_are_tokens_of_their_own() {
    assert_eq!(ViaName::of_bits(BITS).as_bytes(), OURS.as_bytes());
    let [one, other] = [ViaName::random(), ViaName::random()];
    assert_ne!(one, other);
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    assert!(one.as_bytes().iter().all(is_token));
}

/// Goal: our name is found as the receiver of any member, in any case, after any text of a client; similar text of
/// others is not mistaken for it.
#[test]
fn only_our_name_is_found_wherever_it_stands() {
    let name = ViaName::of_bits(BITS);
    for (list, is_ours) in [
        ("1.1 OURS", true),
        ("1.0 a, HTTP/1.1 OURS", true),
        ("1.1 OURS (comment), 1.1 b", true),
        ("\t1.1\t OURS \t", true),
        ("1.0 x ( , 1.1 OURS", true),
        ("1.0 x (\\, 1.1 OURS, 1.1 nginx", true),
        ("1.0 \"x, 1.1 OURS", true),
        ("", false),
        ("1.1 millpond", false),
        ("1.1 millpond-0123456789abcdee", false),
        ("1.1 OURS0", false),
        ("1.1 xOURS", false),
        ("1.1 OURS:80", false),
        ("OURS", false),
        ("1.1 a (by OURS)", false),
        ("OURS/1.1 a", false),
    ] {
        let upper = OURS.to_uppercase();
        for ours in [OURS, &upper] {
            let list = list.replace("OURS", ours);
            assert_eq!(name.is_listed(list.as_bytes()), is_ours, "{list}");
        }
    }
}
