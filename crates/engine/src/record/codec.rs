//! Reads and writes the variable-length numbers and byte strings in log records.

/// A record's payload ends early or holds an impossible value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the record's payload is malformed")]
pub(crate) struct Malformed;

/// Appends `value` in LEB128: seven bits a byte, least significant first.
#[inline]
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes`, then `bytes`.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a payload from front to back; never panics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte without reading it.
    #[inline]
    pub(crate) fn first(&self) -> Result<u8, Malformed> {
        self.0.first().copied().ok_or(Malformed)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// Reads a number that must fit `T`.
    #[inline]
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| Malformed)
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.small::<usize>()?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, value);
            put_bytes(&mut out, b"tail");
            let mut reader = Reader::new(&out);
            assert_eq!(reader.number(), Ok(value));
            assert_eq!(reader.bytes(), Ok(&b"tail"[..]));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn malformed_input_is_an_error() {
        assert_eq!(Reader::new(&[]).byte(), Err(Malformed));
        assert_eq!(Reader::new(&[0x80]).number(), Err(Malformed));
        assert_eq!(Reader::new(&[0xff; 11]).number(), Err(Malformed));
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(), Err(Malformed));
        assert_eq!(Reader::new(&[0xff, 0xff, 0x7f]).small::<u16>(), Err(Malformed));
    }
}
