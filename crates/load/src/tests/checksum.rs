use super::*;

#[test]
fn bytes_have_a_sha256() {
    assert_eq!(
        sha256_hex(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn digits_are_held_to_their_number() {
    assert_eq!(Checksum::crc32("00ff00AA"), Ok(Checksum::Crc32(0xff_00aa)));
    for text in ["", "123", "123456789", "0000000g", "+0000000"] {
        assert!(Checksum::crc32(text).is_err(), "{text}");
        assert!(Checksum::sha256(text).is_err(), "{text}");
    }
    let mut bytes = [0; 32];
    (bytes[0], bytes[31]) = (0xab, 0x01);
    assert_eq!(
        Checksum::sha256(&format!("AB{}01", "0".repeat(60))),
        Ok(Checksum::Sha256(bytes))
    );
}
