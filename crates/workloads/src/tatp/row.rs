//! Keys and rows of TATP, byte for byte.
//!
//! | table | key | row |
//! |---|---|---|
//! | `tatp_subscriber` | s_id u32 | 57 bytes: s_id u32, sub_nbr 15, bit_1 to bit_10, hex_1 to hex_10, byte2_1 to byte2_10, msc_location u32, vlr_location u32 |
//! | `tatp_sub_nbr` | sub_nbr, 15 digits | 4 bytes: s_id u32 |
//! | `tatp_access_info` | s_id u32, ai_type u8 | 10 bytes: data1 u8, data2 u8, data3 3, data4 5 |
//! | `tatp_special_facility` | s_id u32, sf_type u8 | 8 bytes: is_active u8, error_cntrl u8, data_a u8, data_b 5 |
//! | `tatp_call_forwarding` | s_id u32, sf_type u8, start_time u8 | 16 bytes: end_time u8, numberx 15 |
//!
//! Keys are big-endian, so that their byte order is their number order; rows are little-endian,
//! without padding.

/// Digits of a subscriber's number.
pub const NUMBER_LEN: usize = 15;

/// Returns the key of a subscriber.
pub fn subscriber_key(s_id: u32) -> [u8; 4] {
    s_id.to_be_bytes()
}

/// Returns the key of a row of `tatp_access_info` or `tatp_special_facility`; `kind` is ai_type or
/// sf_type.
pub fn kind_key(s_id: u32, kind: u8) -> [u8; 5] {
    let [a, b, c, d] = s_id.to_be_bytes();
    [a, b, c, d, kind]
}

/// Returns the parts of a key of `tatp_access_info` or `tatp_special_facility`.
pub fn decode_kind_key(key: &[u8]) -> Option<(u32, u8)> {
    let [a, b, c, d, kind] = <[u8; 5]>::try_from(key).ok()?;
    Some((u32::from_be_bytes([a, b, c, d]), kind))
}

/// Returns the key of a row of `tatp_call_forwarding`.
pub fn forwarding_key(s_id: u32, sf_type: u8, start_time: u8) -> [u8; 6] {
    let [a, b, c, d] = s_id.to_be_bytes();
    [a, b, c, d, sf_type, start_time]
}

/// Returns the parts of a key of `tatp_call_forwarding`.
pub fn decode_forwarding_key(key: &[u8]) -> Option<(u32, u8, u8)> {
    let [a, b, c, d, sf_type, start_time] = <[u8; 6]>::try_from(key).ok()?;
    Some((u32::from_be_bytes([a, b, c, d]), sf_type, start_time))
}

/// Returns the number of the subscriber `s_id`: its digits with zeros in front.
pub fn sub_nbr(s_id: u32) -> [u8; NUMBER_LEN] {
    let mut digits = [b'0'; NUMBER_LEN];
    let mut rest = s_id;
    for place in digits.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *place += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// A row of `tatp_subscriber`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscriber {
    /// The subscriber, from 1.
    pub s_id: u32,
    /// Its number.
    pub sub_nbr: [u8; NUMBER_LEN],
    /// bit_1 to bit_10, each 0 or 1.
    pub bits: [u8; 10],
    /// hex_1 to hex_10, each 0 to 15.
    pub hexes: [u8; 10],
    /// byte2_1 to byte2_10.
    pub bytes: [u8; 10],
    /// Where its mobile switching centre is.
    pub msc_location: u32,
    /// Where its visitor location register is.
    pub vlr_location: u32,
}

impl Subscriber {
    /// Bytes of a row.
    pub const LEN: usize = 57;
    /// Where bit_1 is in a row.
    pub const BIT_1: usize = 19;
    /// Where vlr_location is in a row.
    pub const VLR_LOCATION: usize = 53;

    /// Returns the row as stored.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        row[..4].copy_from_slice(&self.s_id.to_le_bytes());
        row[4..19].copy_from_slice(&self.sub_nbr);
        row[19..29].copy_from_slice(&self.bits);
        row[29..39].copy_from_slice(&self.hexes);
        row[39..49].copy_from_slice(&self.bytes);
        row[49..53].copy_from_slice(&self.msc_location.to_le_bytes());
        row[53..].copy_from_slice(&self.vlr_location.to_le_bytes());
        row
    }

    /// Returns the row stored as `row`; `None` when it has the wrong length.
    pub fn decode(row: &[u8]) -> Option<Self> {
        let row: &[u8; Self::LEN] = row.try_into().ok()?;
        let number = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        Some(Self {
            s_id: number(0),
            sub_nbr: array(&row[4..19]),
            bits: array(&row[19..29]),
            hexes: array(&row[29..39]),
            bytes: array(&row[39..49]),
            msc_location: number(49),
            vlr_location: number(53),
        })
    }
}

/// A row of `tatp_access_info`.
pub type AccessInfo = [u8; 10];
/// A row of `tatp_special_facility`.
pub type SpecialFacility = [u8; 8];
/// Where is_active is in a special facility.
pub const IS_ACTIVE: usize = 0;
/// Where data_a is in a special facility.
pub const DATA_A: usize = 2;
/// A row of `tatp_call_forwarding`.
pub type CallForwarding = [u8; 1 + NUMBER_LEN];
/// Where end_time is in a call forwarding.
pub const END_TIME: usize = 0;

/// Bytes whose number is known.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_keys_survive_encoding() {
        let row = Subscriber {
            s_id: 7,
            sub_nbr: sub_nbr(7),
            bits: [1; 10],
            hexes: [15; 10],
            bytes: [200; 10],
            msc_location: 1 << 31,
            vlr_location: u32::MAX,
        };
        assert_eq!(Subscriber::decode(&row.encode()), Some(row));
        assert_eq!(Subscriber::decode(&row.encode()[1..]), None);
        assert_eq!(row.encode()[Subscriber::BIT_1], 1);
        assert_eq!(row.encode()[Subscriber::VLR_LOCATION..], [255; 4]);
        assert_eq!(decode_kind_key(&kind_key(300, 4)), Some((300, 4)));
        assert_eq!(decode_forwarding_key(&forwarding_key(300, 4, 16)), Some((300, 4, 16)));
        assert_eq!(decode_forwarding_key(&[]), None);
        assert!(subscriber_key(255) < subscriber_key(256));
    }

    #[test]
    fn numbers_have_fifteen_digits() {
        assert_eq!(&sub_nbr(0), b"000000000000000");
        assert_eq!(&sub_nbr(12_345), b"000000000012345");
        assert_eq!(&sub_nbr(u32::MAX), b"000004294967295");
    }
}
