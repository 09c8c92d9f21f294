//! A class of bytes as two tables of sixteen entries, which is what vector look-ups take.

/// Two tables whose entries, picked by the low and the high half of a byte, share a bit exactly when
/// the byte is of the class. Bytes above 0x7f are of none that is looked up so.
pub(super) struct Nibbles {
    pub(super) low: [u8; 16],
    pub(super) high: [u8; 16],
}

impl Nibbles {
    pub(super) const fn of(class: u8) -> Self {
        let mut low = [0; 16];
        let mut high = [0; 16];
        let mut byte = 0;
        while byte < 0x80 {
            if super::block::CLASSES[byte] & class != 0 {
                low[byte & 15] |= 1 << (byte >> 4);
            }
            high[byte >> 4] = 1 << (byte >> 4);
            byte += 1;
        }
        Self { low, high }
    }
}
