//! Values read a machine word at a time.
//!
//! Every function is given text that goes on at least [`ROOM`] bytes behind where it begins. What it does not read with
//! ease, it leaves to the general parser by saying nothing.

use crate::format::timestamp;

/// Bytes that must be there behind the beginning of a value.
pub(super) const ROOM: usize = 64;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES * 0x80;

/// Exact powers of ten.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
const WHOLE_TENS: [u64; 19] = whole_tens();

const fn whole_tens() -> [u64; 19] {
    let mut table = [1; 19];
    let mut power = 1;
    while power < 19 {
        table[power] = table[power - 1] * 10;
        power += 1;
    }
    table
}

#[inline(always)]
pub(super) fn load(text: &[u8], at: usize) -> Option<u64> {
    text.get(at..at + 8)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// High bits of the bytes that are 0, right up to the first of them.
#[inline(always)]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGH
}

/// The digits at the beginning of eight bytes: their number and their value.
#[inline(always)]
fn digits(word: u64) -> (usize, u64) {
    let values = word ^ (ONES * 0x30);
    let others = (values.wrapping_add(ONES * 0x76) | values) & HIGH;
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // The last digit goes to the highest byte; zeros lead.
    let aligned = values << (64 - 8 * count);
    let pairs = (aligned.wrapping_mul(10) + (aligned >> 8)) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (count, (quads.wrapping_mul(10_000) + (quads >> 32)) & 0xffff_ffff)
}

/// Up to 18 digits: where they end, their number and their value.
#[inline(always)]
fn number(text: &[u8], at: usize) -> Option<(usize, usize, u64)> {
    let (count, value) = digits(load(text, at)?);
    if count < 8 {
        return Some((at + count, count, value));
    }
    let (more, low) = digits(load(text, at + 8)?);
    let value = value * WHOLE_TENS[more] + low;
    if more < 8 {
        return Some((at + 8 + more, 8 + more, value));
    }
    let (more, low) = digits(load(text, at + 16)?);
    (more <= 2).then(|| (at + 16 + more, 16 + more, value * WHOLE_TENS[more] + low))
}

/// An integer of up to 18 digits, and where it ends.
#[inline(always)]
pub(super) fn integer(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let negative = text[at] == b'-';
    let from = at + usize::from(negative);
    let (end, count, value) = number(text, from)?;
    if count == 0 || (text[from] == b'0' && count > 1) || matches!(text.get(end), Some(b'.' | b'e' | b'E')) {
        return None;
    }
    let value = value.cast_signed();
    Some((if negative { -value } else { value }, end))
}

/// A number whose digits make an exact double and whose fraction an exact power of ten: their quotient is the double that
/// is nearest.
#[inline(always)]
pub(super) fn double(text: &[u8], at: usize) -> Option<(f64, usize)> {
    let negative = text[at] == b'-';
    let from = at + usize::from(negative);
    let (mut end, count, mut mantissa) = number(text, from)?;
    if count == 0 || (text[from] == b'0' && count > 1) {
        return None;
    }
    let mut scale = 0;
    if text.get(end) == Some(&b'.') {
        let (behind, after, fraction) = number(text, end + 1)?;
        if after == 0 {
            return None;
        }
        mantissa = mantissa.checked_mul(WHOLE_TENS[after])?.checked_add(fraction)?;
        (end, scale) = (behind, after);
    }
    if mantissa > 1 << 53 || matches!(text.get(end), Some(b'e' | b'E')) {
        return None;
    }
    let value = mantissa as f64 / TENS[scale];
    Some((if negative { -value } else { value }, end))
}

/// Passes a number without reading it, and says where it ends.
#[inline(always)]
pub(super) fn pass_number(text: &[u8], at: usize) -> Option<usize> {
    double(text, at).map(|(_, end)| end)
}

/// Where a string ends whose inside begins at `from`: its closing quote. Nothing when it has an escape or a control
/// character, or does not end.
#[inline(always)]
pub(super) fn closing(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let word = load(text, at)?;
        let stops = word.wrapping_sub(ONES * 0x20) & !word & HIGH
            | zeros(word ^ (ONES * u64::from(b'"')))
            | zeros(word ^ (ONES * u64::from(b'\\')));
        if stops != 0 {
            let end = at + stops.trailing_zeros() as usize / 8;
            return (text[end] == b'"').then_some(end);
        }
        at += 8;
    }
}

/// As [`closing`], of a string whose text is not read: nothing also when it is not ASCII.
#[inline(always)]
pub(super) fn pass_string(text: &[u8], from: usize) -> Option<usize> {
    let end = closing(text, from)?;
    text[from..end].is_ascii().then_some(end)
}

/// Reads timestamps of the minute of the one before it with less work.
#[derive(Debug, Default)]
pub(super) struct Minute {
    /// `YYYY-MM-DDTHH:M` and `M:`.
    text: (u128, u16),
    micros: Option<i64>,
}

impl Minute {
    /// Reads `YYYY-MM-DDTHH:MM:SS[.fraction]` with `Z` or nothing behind it, in quotes: `from` is behind the opening one.
    /// Says the value and where the closing quote stands.
    #[inline(always)]
    pub(super) fn read(&mut self, text: &[u8], from: usize) -> Option<(i64, usize)> {
        let chunk: &[u8; 32] = text.get(from..from + 32)?.first_chunk()?;
        let (head, rest) = chunk.split_first_chunk::<16>()?;
        let prefix = (u128::from_le_bytes(*head), u16::from_le_bytes([rest[0], 0]));
        let minute = match self.micros {
            Some(micros) if self.text == prefix => micros,
            _ => self.renew(chunk, prefix)?,
        };
        let (tens, ones) = (rest[1].wrapping_sub(b'0'), rest[2].wrapping_sub(b'0'));
        if tens > 5 || ones > 9 {
            return None;
        }
        let mut micros = minute + i64::from(tens * 10 + ones) * 1_000_000;
        let mut end = from + 19;
        if rest[3] == b'.' {
            let (count, value) = digits(load(text, from + 20)?);
            if count == 0 || count > 6 {
                return None;
            }
            micros += (value * WHOLE_TENS[6 - count]).cast_signed();
            end = from + 20 + count;
        }
        match (text.get(end)?, text.get(end + 1)?) {
            (b'Z', b'"') => Some((micros, end + 1)),
            (b'"', _) => Some((micros, end)),
            _ => None,
        }
    }

    #[inline(never)]
    fn renew(&mut self, chunk: &[u8; 32], prefix: (u128, u16)) -> Option<i64> {
        let minute = timestamp::parse(&chunk[..16]).filter(|_| chunk[16] == b':')?;
        (self.text, self.micros) = (prefix, Some(minute));
        Some(minute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn padded(text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(b',');
        bytes.resize(bytes.len() + ROOM, 0);
        bytes
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_standard_library(text in "-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,9})?") {
            let bytes = padded(&text);
            if let Some((value, end)) = integer(&bytes, 0) {
                prop_assert_eq!((value, end), (text.parse().unwrap(), text.len()));
            }
            if let Some((value, end)) = double(&bytes, 0) {
                let exact: f64 = text.parse().unwrap();
                prop_assert_eq!((value.to_bits(), end), (exact.to_bits(), text.len()));
            } else {
                prop_assert!(text.len() > 15, "{}", text);
            }
        }

        #[test]
        fn strings_end_at_their_quote(text in "[ -~é]{0,40}", more in any::<[u8; 8]>()) {
            let mut bytes = text.clone().into_bytes();
            bytes.push(b'"');
            bytes.extend_from_slice(&more);
            bytes.resize(bytes.len() + ROOM, 0);
            let stop = text.find(['"', '\\']).unwrap_or(text.len());
            let expected = (bytes[stop] == b'"').then_some(stop);
            prop_assert_eq!(closing(&bytes, 0), expected);
            prop_assert_eq!(pass_string(&bytes, 0), expected.filter(|end| bytes[..*end].is_ascii()));
        }

        #[test]
        fn timestamps_are_those_of_the_parser(
            texts in proptest::collection::vec("20[0-2][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9][:.][0-6][0-9](\\.[0-9]{0,8})?(Z|z|\\+01)?", 1..20),
            repeat in any::<bool>()
        ) {
            let mut minute = Minute::default();
            for text in &texts {
                let text = if repeat { format!("{}{}", &texts[0][..16], &text[16..]) } else { text.clone() };
                let bytes = padded(&format!("{text}\""));
                if let Some((micros, end)) = minute.read(&bytes, 0) {
                    prop_assert_eq!((Some(micros), end), (timestamp::parse(text.as_bytes()), text.len()));
                } else if text.ends_with('Z') && text.len() == 20 {
                    prop_assert_eq!(timestamp::parse(text.as_bytes()), None);
                }
            }
        }
    }
}
