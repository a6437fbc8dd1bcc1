//! A growing dictionary of strings: bytes in, code out.
//!
//! A short string is two masked words. They choose a line of a cache, which holds three such strings
//! whole, so a hit touches one line of memory and branches on nothing but whether it is one. A miss,
//! and every longer string, goes to an open-addressed table over the stored bytes. The cache grows with
//! the number of strings.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};

use super::cursor::Fault;
use crate::format::grown::Grown;

/// Lines of the cache, at first and at most: powers of two.
const FEWEST_LINES: usize = 64;
const MOST_LINES: usize = 1 << 15;
/// Bits of a way that are a string's code; above them is its length.
const CODE_BITS: u32 = 27;
const CODE_MASK: u32 = (1 << CODE_BITS) - 1;
const WORDS: usize = 16;
const EMPTY: u32 = u32::MAX;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Masks that keep the first `n` of sixteen bytes.
const MASKS: [(u64, u64); WORDS + 1] = masks();

const fn masks() -> [(u64, u64); WORDS + 1] {
    let mut table = [(0, 0); WORDS + 1];
    let mut n = 1;
    while n <= WORDS {
        table[n] = if n < 8 {
            ((1 << (8 * n)) - 1, 0)
        } else if n == 8 {
            (u64::MAX, 0)
        } else if n < 16 {
            (u64::MAX, (1 << (8 * (n - 8))) - 1)
        } else {
            (u64::MAX, u64::MAX)
        };
        n += 1;
    }
    table
}

/// Three strings and their codes.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Line {
    low: [u64; 3],
    high: [u64; 3],
    ways: [u32; 3],
    /// The way that is overwritten next.
    next: u32,
}

const VACANT: Line = Line { low: [0; 3], high: [0; 3], ways: [EMPTY; 3], next: 0 };

impl Line {
    /// The code of a string, or [`EMPTY`].
    #[inline(always)]
    fn find(&self, low: u64, high: u64, length: usize) -> u32 {
        let hit = |way: usize| {
            let differs = (self.low[way] ^ low) | (self.high[way] ^ high);
            let differs = differs | u64::from((self.ways[way] >> CODE_BITS) ^ length as u32);
            // All ones where nothing differs.
            u32::from(differs == 0).wrapping_neg() & ((self.ways[way] & CODE_MASK) + 1)
        };
        (hit(0) | hit(1) | hit(2)).wrapping_sub(1)
    }

    fn put(&mut self, low: u64, high: u64, length: usize, code: u32) {
        let way = self.next as usize % 3;
        (self.low[way], self.high[way]) = (low, high);
        self.ways[way] = (length as u32) << CODE_BITS | code;
        self.next = self.next.wrapping_add(1) % 3;
    }
}

/// Distinct strings in the order in which they were first seen; a string's code is its position.
#[derive(Debug)]
pub(crate) struct Dictionary {
    bytes: Grown<u8>,
    offsets: Grown<i32>,
    hashes: Vec<u32>,
    table: Vec<u32>,
    cache: Box<[Line]>,
    seed: u64,
    snapshot: Option<ArrayRef>,
}

impl Default for Dictionary {
    fn default() -> Self {
        let mut offsets = Grown::default();
        offsets.extend(&[0]);
        Self {
            bytes: Grown::default(),
            offsets,
            hashes: Vec::new(),
            table: vec![EMPTY; 64],
            cache: vec![VACANT; FEWEST_LINES].into(),
            seed: RandomState::new().hash_one(0u8),
            snapshot: None,
        }
    }
}

impl Dictionary {
    /// Number of distinct strings.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Forgets every string; codes given out before keep their meaning only in arrays built before.
    pub(crate) fn clear(&mut self) {
        let seed = self.seed;
        *self = Self { seed, ..Self::default() };
    }

    /// The code of the first `length` bytes of `rest`. `rest` may run on behind the string.
    ///
    /// # Errors
    /// [`Fault::Utf8`] when a string seen for the first time is not UTF-8.
    #[inline(always)]
    pub(crate) fn intern(&mut self, rest: &[u8], length: usize) -> Result<i32, Fault> {
        if length > WORDS {
            return self.intern_in_table(&rest[..length]);
        }
        let (low, high) = words(rest, length);
        let mixed = (low ^ high.rotate_left(29) ^ length as u64).wrapping_mul(MIX);
        let index = |cache: &[Line]| (mixed >> 48) as usize & (cache.len() - 1);
        let found = self.cache[index(&self.cache)].find(low, high, length);
        if found != EMPTY {
            return Ok(found as i32);
        }
        let code = self.intern_in_table(&rest[..length])?;
        if code as u32 <= CODE_MASK {
            let index = index(&self.cache);
            self.cache[index].put(low, high, length, code as u32);
        }
        Ok(code)
    }

    #[inline(never)]
    fn intern_in_table(&mut self, text: &[u8]) -> Result<i32, Fault> {
        let hash = hash(text, self.seed);
        let mask = self.table.len() - 1;
        let mut index = hash as usize & mask;
        loop {
            let code = self.table[index];
            if code == EMPTY {
                return self.insert(text, hash, index);
            }
            if self.hashes[code as usize] == hash && self.text(code as usize) == text {
                return Ok(code as i32);
            }
            index = (index + 1) & mask;
        }
    }

    #[cold]
    fn insert(&mut self, text: &[u8], hash: u32, index: usize) -> Result<i32, Fault> {
        if std::str::from_utf8(text).is_err() {
            return Err(Fault::Utf8);
        }
        let code = self.hashes.len() as u32;
        self.bytes.extend(text);
        self.offsets.extend(&[self.bytes.len() as i32]);
        self.hashes.push(hash);
        self.table[index] = code;
        self.snapshot = None;
        if self.hashes.len() * 2 > self.table.len() {
            self.grow();
        }
        if self.hashes.len() > self.cache.len() && self.cache.len() < MOST_LINES {
            self.cache = vec![VACANT; (self.cache.len() * 4).min(MOST_LINES)].into();
        }
        Ok(code as i32)
    }

    fn grow(&mut self) {
        let size = self.table.len() * 4;
        let mask = size - 1;
        self.table.clear();
        self.table.resize(size, EMPTY);
        for (code, &hash) in self.hashes.iter().enumerate() {
            let mut index = hash as usize & mask;
            while self.table[index] != EMPTY {
                index = (index + 1) & mask;
            }
            self.table[index] = code as u32;
        }
    }

    fn text(&self, code: usize) -> &[u8] {
        let offsets = self.offsets.as_slice();
        &self.bytes.as_slice()[offsets[code] as usize..offsets[code + 1] as usize]
    }

    /// Bytes of all strings together, with their offsets.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.offsets.len() * size_of::<i32>()
    }

    /// The strings as an Arrow array: the same `Arc` as before while no string was added. Nothing is copied: an array of more
    /// strings mostly shares its memory with the arrays before it, and begins with their strings.
    pub(crate) fn values(&mut self) -> ArrayRef {
        if let Some(array) = &self.snapshot {
            return Arc::clone(array);
        }
        let offsets = ScalarBuffer::new(self.offsets.buffer(), 0, self.offsets.len());
        // SAFETY: offsets begin with 0 and never fall.
        let offsets = unsafe { OffsetBuffer::new_unchecked(offsets) };
        // SAFETY: every stored string was checked to be UTF-8 on its own, and the offsets are the
        // boundaries between them.
        let array: ArrayRef = Arc::new(unsafe { StringArray::new_unchecked(offsets, self.bytes.buffer(), None) });
        self.snapshot = Some(Arc::clone(&array));
        array
    }
}

/// The string as sixteen bytes, zero behind its end.
#[inline(always)]
fn words(rest: &[u8], length: usize) -> (u64, u64) {
    let bytes = match rest.first_chunk::<WORDS>() {
        Some(bytes) => *bytes,
        None => {
            let mut padded = [0; WORDS];
            padded[..length].copy_from_slice(&rest[..length]);
            padded
        }
    };
    let word = u128::from_le_bytes(bytes);
    let (low, high) = MASKS[length];
    (word as u64 & low, (word >> 64) as u64 & high)
}

fn hash(text: &[u8], seed: u64) -> u32 {
    let mut state = seed ^ (text.len() as u64).wrapping_mul(MIX);
    let mut chunks = text.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = (state ^ u64::from_le_bytes(word)).wrapping_mul(MIX);
        state ^= state >> 29;
    }
    let mut word = [0; 8];
    word[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    state = (state ^ u64::from_le_bytes(word)).wrapping_mul(MIX);
    ((state ^ (state >> 31)).wrapping_mul(MIX) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Array, AsArray};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equal_strings_share_a_code_and_values_give_them_back(
            texts in proptest::collection::vec("[a-c\u{0}é]{0,20}", 0..300)
        ) {
            let mut dictionary = Dictionary::default();
            let mut codes = Vec::new();
            for text in &texts {
                let mut behind = text.clone().into_bytes();
                behind.extend_from_slice(b"what follows in the datum");
                let long = dictionary.intern(&behind, text.len()).unwrap();
                let short = dictionary.intern(text.as_bytes(), text.len()).unwrap();
                prop_assert_eq!(long, short);
                codes.push(long);
            }
            let values = dictionary.values();
            let values = values.as_string::<i32>();
            for (text, code) in texts.iter().zip(&codes) {
                prop_assert_eq!(values.value(*code as usize), text);
            }
            let distinct: std::collections::HashSet<_> = texts.iter().collect();
            prop_assert_eq!(values.len(), distinct.len());
        }
    }

    #[test]
    fn values_are_shared_until_a_string_is_added() {
        let mut dictionary = Dictionary::default();
        dictionary.intern(b"one", 3).unwrap();
        let first = dictionary.values();
        dictionary.intern(b"one", 3).unwrap();
        assert!(Arc::ptr_eq(&first, &dictionary.values()));
        dictionary.intern(b"two", 3).unwrap();
        assert!(!Arc::ptr_eq(&first, &dictionary.values()));
    }

    #[test]
    fn many_strings_keep_their_codes_and_share_memory() {
        let mut dictionary = Dictionary::default();
        let texts: Vec<String> = (0..100_000).map(|n| format!("key {}", n * 7919)).collect();
        let codes: Vec<i32> = texts.iter().map(|t| dictionary.intern(t.as_bytes(), t.len()).unwrap()).collect();
        let first = dictionary.values();
        dictionary.intern(b"one more", 8).unwrap();
        let second = dictionary.values();
        let starts = |array: &ArrayRef| array.as_string::<i32>().values().as_ptr();
        assert_eq!((first.len(), second.len()), (100_000, 100_001));
        assert_eq!(starts(&first), starts(&second));
        for (text, code) in texts.iter().zip(codes) {
            assert_eq!(dictionary.intern(text.as_bytes(), text.len()), Ok(code));
            assert_eq!(second.as_string::<i32>().value(code as usize), text);
        }
    }

    #[test]
    fn a_string_that_is_not_utf8_is_not_taken_in() {
        let mut dictionary = Dictionary::default();
        assert_eq!(dictionary.intern(&[0xff], 1), Err(Fault::Utf8));
        assert_eq!(dictionary.len(), 0);
    }
}
