//! Strings on their way to ClickHouse: each distinct one once, and its code per row.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Int32Type;

use super::column::extend;

/// The distinct strings of a column, encoded as ClickHouse reads them, and the way from a batch's own codes to theirs.
///
/// It outlives a block, so that a string is hashed once, not once per block; only strings that rows really use get in.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Length (varint) and bytes of every key.
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<u32>,
    codes: HashMap<Box<[u8]>, u32>,
    /// The batch dictionary that `remap` leads from; held so that its address stays its own.
    source: Option<ArrayRef>,
    remap: Vec<u32>,
    /// Key 0 stands for null.
    null_first: bool,
}

/// A batch code that has not been looked up yet.
const UNKNOWN: u32 = u32::MAX;

/// More keys than this and the next block starts with none.
const MAX_KEYS: usize = 1 << 16;

impl Keys {
    pub(crate) fn new(null_first: bool) -> Self {
        let mut keys = Self { null_first, ..Self::default() };
        keys.clear();
        keys
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.codes.clear();
        self.remap.clear();
        self.source = None;
        if self.null_first {
            self.bytes.push(0);
            self.ends.push(1);
        }
    }

    /// Prepares for a block.
    pub(crate) fn start_block(&mut self) {
        if self.ends.len() > MAX_KEYS {
            self.clear();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All keys, encoded, one behind the other.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of one key, without their length.
    pub(crate) fn text(&self, code: usize) -> &[u8] {
        let start = if code == 0 { 0 } else { self.ends[code - 1] as usize };
        let encoded = &self.bytes[start..self.ends[code] as usize];
        let length = encoded.iter().position(|byte| *byte < 0x80).map_or(0, |last| last + 1);
        &encoded[length..]
    }

    /// Where each key ends in [`Keys::encoded`].
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Bytes of one code on the wire.
    pub(crate) fn width(&self) -> usize {
        match self.ends.len() {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        }
    }

    fn intern(&mut self, text: &[u8]) -> u32 {
        if let Some(&code) = self.codes.get(text) {
            return code;
        }
        let code = self.ends.len() as u32;
        varint(text.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u32);
        self.codes.insert(text.into(), code);
        code
    }

    /// Looks up the strings of a batch's column and appends their codes to `out`. Nulls become code 0.
    pub(crate) fn append(&mut self, array: &dyn Array, out: &mut Codes) {
        match array.as_dictionary_opt::<Int32Type>() {
            Some(array) => {
                self.follow(array.values());
                let keys = &array.keys().values()[..];
                if array.keys().null_count() == 0 {
                    self.append_codes(array.values(), keys, out);
                } else {
                    self.append_nullable(array.values(), keys, |row| array.keys().is_null(row), out);
                }
            }
            None => {
                let array = array.as_string::<i32>();
                for row in 0..array.len() {
                    let code = if array.is_null(row) { 0 } else { self.intern(array.value(row).as_bytes()) };
                    out.widen(self.width());
                    out.push(code);
                }
            }
        }
    }

    /// Takes up another batch dictionary.
    fn follow(&mut self, values: &ArrayRef) {
        if self.source.as_ref().is_some_and(|source| Arc::ptr_eq(source, values)) {
            return;
        }
        self.remap.clear();
        self.remap.resize(values.len(), UNKNOWN);
        self.source = Some(Arc::clone(values));
    }

    fn append_codes(&mut self, values: &ArrayRef, keys: &[i32], out: &mut Codes) {
        out.widen(self.width());
        if out.gather(&self.remap, keys) {
            return;
        }
        for &key in keys {
            self.look_up(values, key);
        }
        out.widen(self.width());
        let known = out.gather(&self.remap, keys);
        debug_assert!(known, "every key has just been looked up");
    }

    fn append_nullable(&mut self, values: &ArrayRef, keys: &[i32], null: impl Fn(usize) -> bool, out: &mut Codes) {
        for (row, &key) in keys.iter().enumerate() {
            let code = if null(row) { 0 } else { self.look_up(values, key) };
            out.widen(self.width());
            out.push(code);
        }
    }

    fn look_up(&mut self, values: &ArrayRef, key: i32) -> u32 {
        let known = self.remap[key as usize];
        if known != UNKNOWN {
            return known;
        }
        let code = self.intern(values.as_string::<i32>().value(key as usize).as_bytes());
        self.remap[key as usize] = code;
        code
    }
}

/// Codes in the narrowest of one, two or four little-endian bytes.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) width: usize,
}

impl Codes {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.width = 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.width.max(1)
    }

    pub(crate) fn get(&self, index: usize) -> usize {
        match self.width {
            2 => usize::from(u16::from_le_bytes([self.bytes[2 * index], self.bytes[2 * index + 1]])),
            4 => {
                let four = &self.bytes[4 * index..4 * index + 4];
                u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize
            }
            _ => usize::from(self.bytes[index]),
        }
    }

    /// Makes room for codes of `width` bytes; codes already there are rewritten.
    fn widen(&mut self, width: usize) {
        let old = self.width.max(1);
        if width <= old {
            self.width = old;
            return;
        }
        let count = self.len();
        let mut wide = Vec::with_capacity(self.bytes.capacity().max(count * width));
        for code in self.bytes.chunks_exact(old) {
            wide.extend_from_slice(code);
            wide.resize(wide.len() + width - old, 0);
        }
        self.bytes = wide;
        self.width = width;
    }

    fn push(&mut self, code: u32) {
        self.bytes.extend_from_slice(&code.to_le_bytes()[..self.width]);
    }

    /// Appends `table[key]` for every key; nothing, and `false`, when one of them is unknown.
    fn gather(&mut self, table: &[u32], keys: &[i32]) -> bool {
        let start = self.bytes.len();
        let mut unknown = false;
        let look_up = |key: &i32| {
            let code = table[*key as usize];
            unknown |= code == UNKNOWN;
            code
        };
        let codes = keys.iter().map(look_up);
        match self.width {
            2 => extend(&mut self.bytes, codes.map(|code| (code as u16).to_le_bytes())),
            4 => extend(&mut self.bytes, codes.map(u32::to_le_bytes)),
            _ => extend(&mut self.bytes, codes.map(|code| [code as u8])),
        }
        if unknown {
            self.bytes.truncate(start);
        }
        !unknown
    }
}

/// ClickHouse's variable-length integer: seven bits a byte, the lowest first.
pub(crate) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, Int32Array, StringArray};
    use proptest::prelude::*;

    fn strings(keys: &Keys, codes: &Codes) -> Vec<String> {
        (0..codes.len()).map(|row| String::from_utf8(keys.text(codes.get(row)).to_vec()).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn batches_with_dictionaries_of_their_own_share_one_set_of_keys(
            batches in proptest::collection::vec(
                (1usize..400, proptest::collection::vec(proptest::option::of(any::<prop::sample::Index>()), 0..40)), 1..5
            ),
            nullable in any::<bool>()
        ) {
            let mut keys = Keys::new(nullable);
            let mut codes = Codes::default();
            codes.clear();
            let mut want = Vec::new();
            for (size, picks) in batches {
                let values: Vec<String> = (0..size).map(|n| format!("{}", n * 7 % 601)).collect();
                let picks: Vec<Option<i32>> = picks
                    .iter()
                    .map(|pick| pick.map(|pick| pick.index(size) as i32))
                    .map(|pick| if nullable { pick } else { Some(pick.unwrap_or(0)) })
                    .collect();
                want.extend(picks.iter().map(|pick| pick.map_or(String::new(), |pick| values[pick as usize].clone())));
                let array = DictionaryArray::new(
                    Int32Array::from(picks),
                    Arc::new(StringArray::from(values)),
                );
                keys.append(&array, &mut codes);
            }
            prop_assert_eq!(strings(&keys, &codes), want);
        }
    }

    #[test]
    fn only_used_strings_become_keys_and_codes_widen_with_them() {
        let mut keys = Keys::new(false);
        let mut codes = Codes::default();
        let values: ArrayRef = Arc::new(StringArray::from_iter_values((0..300).map(|n| n.to_string())));
        let array = DictionaryArray::new(Int32Array::from(vec![7, 7, 9]), values.clone());
        keys.append(&array, &mut codes);
        assert_eq!((keys.len(), codes.width, codes.bytes.as_slice()), (2, 1, &[0, 0, 1][..]));
        let array = DictionaryArray::new(Int32Array::from_iter_values(0..300), values);
        keys.append(&array, &mut codes);
        assert_eq!((keys.len(), codes.width, codes.len()), (300, 2, 303));
        assert_eq!((codes.get(0), codes.get(2)), (0, 1));
    }
}
