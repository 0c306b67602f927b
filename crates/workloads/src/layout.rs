//! Rows of fixed-size fields: one behind the other, without padding, numbers little-endian.

/// A field of fixed size.
pub(crate) trait Field: Sized {
    /// Its bytes.
    const LEN: usize;

    /// Returns the field at the start of `bytes`, which has room for it.
    fn read(bytes: &[u8]) -> Self;

    /// Writes the field at the start of `bytes`, which has room for it.
    fn write(&self, bytes: &mut [u8]);
}

macro_rules! number_fields {
    ($($type:ty),*) => {$(
        impl Field for $type {
            const LEN: usize = size_of::<$type>();

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; Self::LEN];
                own.copy_from_slice(&bytes[..Self::LEN]);
                Self::from_le_bytes(own)
            }

            #[inline]
            fn write(&self, bytes: &mut [u8]) {
                bytes[..Self::LEN].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

number_fields!(u8, u16, u32, u64, i32, i64);

/// Text of at most `N` bytes, zeros behind it.
impl<const N: usize> Field for [u8; N] {
    const LEN: usize = N;

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        let mut own = [0; N];
        own.copy_from_slice(&bytes[..N]);
        own
    }

    #[inline]
    fn write(&self, bytes: &mut [u8]) {
        bytes[..N].copy_from_slice(self);
    }
}

/// Defines a struct that is the beginning of a row, or a part of one.
macro_rules! layout {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes that the fields take.
            pub const LEN: usize = 0 $(+ <$type as crate::layout::Field>::LEN)*;

            /// Returns the fields at the start of `row`; `None` when it is too short.
            #[inline]
            pub fn decode(row: &[u8]) -> Option<Self> {
                (row.len() >= Self::LEN).then(|| <Self as crate::layout::Field>::read(row))
            }

            /// Returns the row of these fields and of `rest` behind them.
            pub fn row(&self, rest: &[u8]) -> Vec<u8> {
                let mut row = vec![0; Self::LEN + rest.len()];
                crate::layout::Field::write(self, &mut row);
                row[Self::LEN..].copy_from_slice(rest);
                row
            }

            /// Overwrites the fields at the start of `row`, where they have been decoded from.
            #[inline]
            pub fn store(&self, row: &mut [u8]) {
                crate::layout::Field::write(self, row);
            }
        }

        impl crate::layout::Field for $name {
            const LEN: usize = $name::LEN;

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let bytes = &bytes[..Self::LEN];
                let mut at = 0;
                $(
                    let $field = <$type as crate::layout::Field>::read(&bytes[at..]);
                    at += <$type as crate::layout::Field>::LEN;
                )*
                assert_eq!(at, Self::LEN);
                Self { $($field,)* }
            }

            #[inline]
            fn write(&self, bytes: &mut [u8]) {
                let bytes = &mut bytes[..Self::LEN];
                let mut at = 0;
                $(
                    self.$field.write(&mut bytes[at..]);
                    at += <$type as crate::layout::Field>::LEN;
                )*
                assert_eq!(at, Self::LEN);
            }
        }
    };
}

pub(crate) use layout;

#[cfg(test)]
mod tests {
    #![allow(unreachable_pub, dead_code, reason = "the structs are public where they are in use")]

    use super::Field;

    layout! {
        /// Numbers and text.
        pub struct Part {
            /// A number.
            pub number: i64,
            /// Text.
            pub text: [u8; 3],
        }
    }

    layout! {
        /// A part between numbers.
        pub struct Whole {
            /// A number.
            pub first: u16,
            /// A part.
            pub part: Part,
            /// A number.
            pub last: u8,
        }
    }

    #[test]
    fn fields_lie_one_behind_the_other() {
        let whole = Whole { first: 0x0102, part: Part { number: -2, text: *b"abc" }, last: 9 };
        let row = whole.row(b"rest");
        assert_eq!((Whole::LEN, row.len()), (14, 18));
        assert_eq!(row[..3], [2, 1, 0xfe]);
        assert_eq!(&row[10..], b"abc\x09rest");
        assert_eq!(Whole::decode(&row), Some(whole));
        assert_eq!(Whole::decode(&row[..13]), None);
        let mut changed = row.clone();
        Whole { last: 10, ..whole }.store(&mut changed);
        assert_eq!(changed[13], 10);
        assert_eq!(Part::read(&row[2..]), whole.part);
    }
}
