//! Checksums that a user knows of a body.
//!
//! Absent on purpose: heap calls and buffering; both kinds hash what arrives as it arrives.
use ring::digest::{Context, SHA256};

/// What the bytes of a body add up to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksum {
    /// Of `cksum -a crc32b`, gzip and PNG.
    Crc32(u32),
    /// Of `sha256sum`.
    Sha256([u8; 32]),
}

impl Checksum {
    /// From eight hexadecimal digits.
    pub fn crc32(hex: &str) -> Result<Self, String> {
        let wrong = || format!("`{hex}` is not a CRC-32: eight hexadecimal digits");
        let digits = hex.len() == 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u32::from_str_radix(hex, 16).ok().filter(|_| digits);
        value.map(Self::Crc32).ok_or_else(wrong)
    }

    /// From 64 hexadecimal digits.
    pub fn sha256(hex: &str) -> Result<Self, String> {
        let wrong = || format!("`{hex}` is not a SHA-256: 64 hexadecimal digits");
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, start) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&hex[start..start + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self::Sha256(bytes))
    }
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&SHA256, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// A checksum being computed.
#[expect(
    clippy::large_enum_variant,
    reason = "it lies in a box of its own already"
)]
#[derive(Clone)]
pub(super) enum Hasher {
    Crc32(crc32fast::Hasher),
    Sha256(Context),
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hasher")
    }
}

impl Hasher {
    pub(super) fn of(checksum: &Checksum) -> Self {
        match checksum {
            Checksum::Crc32(_) => Self::Crc32(crc32fast::Hasher::new()),
            Checksum::Sha256(_) => Self::Sha256(Context::new(&SHA256)),
        }
    }

    pub(super) fn update(&mut self, part: &[u8]) {
        match self {
            Self::Crc32(hasher) => hasher.update(part),
            Self::Sha256(context) => context.update(part),
        }
    }

    pub(super) fn finish(self) -> Checksum {
        match self {
            Self::Crc32(hasher) => Checksum::Crc32(hasher.finalize()),
            Self::Sha256(context) => {
                let mut bytes = [0; 32];
                bytes.copy_from_slice(context.finish().as_ref());
                Checksum::Sha256(bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
