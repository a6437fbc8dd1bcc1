//! A bounds-checked reader over one Avro datum.

/// Why a datum cannot be decoded; the byte offset is kept by the [`Cursor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The datum ends inside a value.
    #[error("the message ends inside a value")]
    Truncated,
    /// A variable-length integer is longer than its type allows.
    #[error("a variable-length integer is too long or out of range")]
    Varint,
    /// A length or a block size below zero.
    #[error("a length is negative")]
    NegativeLength,
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean is neither 0 nor 1")]
    Boolean,
    /// A union branch the writer schema does not have.
    #[error("a union names a branch that the writer schema does not have")]
    Branch,
    /// An enum symbol the writer schema does not have.
    #[error("an enum names a symbol that the writer schema does not have")]
    Symbol,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// An array block that claims more items than its bytes can hold.
    #[error("an array or map claims more items than the message can hold")]
    BlockCount,
    /// Bytes after the end of the datum.
    #[error("bytes are left over after the record: it was not written with this schema")]
    Trailing,
}

/// A position in one datum. Every read checks the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next byte to read.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// A zigzag variable-length integer of up to 64 bits.
    #[inline(always)]
    pub(crate) fn long(&mut self) -> Result<i64, Fault> {
        let raw = match self.bytes.get(self.at) {
            Some(&first) if first < 0x80 => {
                self.at += 1;
                u64::from(first)
            }
            _ => self.long_varint()?,
        };
        Ok(((raw >> 1) as i64) ^ -((raw & 1) as i64))
    }

    /// A value that is seldom one byte long: eight bytes are looked at together.
    #[inline(always)]
    fn long_varint(&mut self) -> Result<u64, Fault> {
        if let Some(window) = self.bytes.get(self.at..self.at + 8) {
            let word = u64::from_le_bytes([
                window[0], window[1], window[2], window[3], window[4], window[5], window[6], window[7],
            ]);
            let stops = !word & 0x8080_8080_8080_8080;
            if stops != 0 {
                let bits = stops.trailing_zeros() + 1;
                self.at += (bits / 8) as usize;
                return Ok(compact(word & (u64::MAX >> (64 - bits))));
            }
        }
        self.long_bytewise()
    }

    #[cold]
    #[inline(never)]
    fn long_bytewise(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for index in 0..10 {
            let byte = *self.bytes.get(self.at).ok_or(Fault::Truncated)?;
            self.at += 1;
            if index == 9 && byte > 1 {
                return Err(Fault::Varint);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Fault::Varint)
    }

    /// A zigzag variable-length integer of up to 32 bits.
    #[inline(always)]
    pub(crate) fn int(&mut self) -> Result<i32, Fault> {
        i32::try_from(self.long()?).map_err(|_| Fault::Varint)
    }

    #[inline(always)]
    pub(crate) fn double(&mut self) -> Result<f64, Fault> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    #[inline(always)]
    pub(crate) fn float(&mut self) -> Result<f32, Fault> {
        Ok(f32::from_le_bytes(self.array()?))
    }

    #[inline(always)]
    pub(crate) fn boolean(&mut self) -> Result<u8, Fault> {
        match self.array::<1>()? {
            [byte @ (0 | 1)] => Ok(byte),
            _ => Err(Fault::Boolean),
        }
    }

    /// A length-prefixed byte string.
    #[inline(always)]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.length()?;
        self.take(length)
    }

    /// A length-prefixed string, and every byte from its start to the end of the datum, so that a
    /// reader of fixed-width words may look past its end.
    #[inline(always)]
    pub(crate) fn text(&mut self) -> Result<(&'a [u8], usize), Fault> {
        let length = self.length()?;
        let rest = &self.bytes[self.at..];
        if rest.len() < length {
            return Err(Fault::Truncated);
        }
        self.at += length;
        Ok((rest, length))
    }

    #[inline(always)]
    pub(crate) fn length(&mut self) -> Result<usize, Fault> {
        usize::try_from(self.long()?).map_err(|_| Fault::NegativeLength)
    }

    /// The next `count` bytes.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..count).ok_or(Fault::Truncated)?;
        self.at += count;
        Ok(taken)
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (head, _) = self.bytes[self.at..].split_first_chunk::<N>().ok_or(Fault::Truncated)?;
        self.at += N;
        Ok(*head)
    }

    /// The head of an array or map block: its number of items, and its size in bytes where the
    /// writer states it. Zero items end the array. `item_floor` is the least number of bytes one
    /// item takes; a count that cannot fit in what is left is a fault, so no allocation is larger
    /// than the datum that asks for it.
    #[inline(always)]
    pub(crate) fn block(&mut self, item_floor: usize) -> Result<(usize, Option<usize>), Fault> {
        let count = self.long()?;
        if count >= 0 {
            let count = self.fits(count as u64, item_floor)?;
            return Ok((count, None));
        }
        let count = self.fits(count.unsigned_abs(), item_floor)?;
        let size = self.length()?;
        if size > self.remaining() {
            return Err(Fault::Truncated);
        }
        Ok((count, Some(size)))
    }

    #[inline(always)]
    fn fits(&self, count: u64, item_floor: usize) -> Result<usize, Fault> {
        const EMPTY_ITEMS: u64 = 1 << 16;
        let room = match item_floor {
            0 => EMPTY_ITEMS,
            1 => self.remaining() as u64,
            floor => (self.remaining() / floor) as u64,
        };
        if count > room {
            return Err(Fault::BlockCount);
        }
        Ok(count as usize)
    }
}

/// Removes the continuation bit of each of eight bytes, seven bits of payload each.
#[inline(always)]
fn compact(word: u64) -> u64 {
    let x = word & 0x7f7f_7f7f_7f7f_7f7f;
    let x = (x & 0x007f_007f_007f_007f) | ((x & 0x7f00_7f00_7f00_7f00) >> 1);
    let x = (x & 0x0000_3fff_0000_3fff) | ((x & 0x3fff_0000_3fff_0000) >> 2);
    (x & 0x0000_0000_0fff_ffff) | ((x & 0x0fff_ffff_0000_0000) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn zigzag(value: i64) -> Vec<u8> {
        let mut raw = ((value << 1) ^ (value >> 63)) as u64;
        let mut out = Vec::new();
        while raw >= 0x80 {
            out.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        out.push(raw as u8);
        out
    }

    proptest! {
        #[test]
        fn a_long_is_read_back_with_and_without_bytes_behind_it(
            value in any::<i64>(), shift in 0u32..64, tail in 0usize..12
        ) {
            let value = value >> shift;
            let mut bytes = zigzag(value);
            let length = bytes.len();
            bytes.resize(length + tail, 0xff);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.long(), Ok(value));
            prop_assert_eq!(cursor.offset(), length);
        }
    }

    #[test]
    fn an_endless_or_overlong_integer_is_a_fault() {
        assert_eq!(Cursor::new(&[0xff; 20]).long(), Err(Fault::Varint));
        assert_eq!(Cursor::new(&[0xff; 5]).long(), Err(Fault::Truncated));
        assert_eq!(Cursor::new(&[]).long(), Err(Fault::Truncated));
        let mut too_wide = vec![0xff; 9];
        too_wide.push(2);
        assert_eq!(Cursor::new(&too_wide).long(), Err(Fault::Varint));
        assert_eq!(Cursor::new(&zigzag(1 << 31)).int(), Err(Fault::Varint));
        assert_eq!(Cursor::new(&zigzag(i64::from(i32::MIN))).int(), Ok(i32::MIN));
    }

    #[test]
    fn a_block_cannot_claim_more_items_than_its_bytes_hold() {
        let mut bytes = zigzag(1_000_000);
        bytes.extend([0; 16]);
        assert_eq!(Cursor::new(&bytes).block(1), Err(Fault::BlockCount));
        let mut negative = zigzag(-2);
        negative.extend(zigzag(4));
        negative.extend([0; 4]);
        assert_eq!(Cursor::new(&negative).block(2), Ok((2, Some(4))));
        assert_eq!(Cursor::new(&zigzag(i64::MIN)).block(0), Err(Fault::BlockCount));
    }
}
