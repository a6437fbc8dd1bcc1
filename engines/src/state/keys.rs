//! Group keys: the values of the GROUP BY columns as small numbers.
//!
//! A [`KeyTable`] numbers the keys of one operator and is shared by all workers; its bytes order as the values do, nulls last.

use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::types::Int32Type;
use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int32Array, StringArray};
use arrow::compute::{SortOptions, can_cast_types, cast, take};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::row::{RowConverter, SortField};
use hashbrown::{DefaultHashBuilder, HashTable};
use rayon::prelude::*;

use crate::error::Error;

pub(crate) use super::mapper::{KeyMapper, normal};

/// Number of a key that is not known.
pub(crate) const NONE: u32 = u32::MAX;

/// The keys of an operator. Keys are added and never taken away: whoever wants fewer makes another table.
#[derive(Debug)]
pub(crate) struct KeyTable {
    pub(super) converter: Arc<RowConverter>,
    pub(super) types: Vec<DataType>,
    inner: Mutex<Inner>,
    /// Derived from the keys when it is asked for.
    view: Mutex<Option<Arc<View>>>,
}

/// Bytes and their numbers.
#[derive(Debug, Default)]
pub(super) struct Inner {
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    keys: Keys,
}

/// Bytes of keys, one behind the other.
#[derive(Debug, Default, Clone)]
struct Keys {
    bytes: Vec<u8>,
    /// Where each key's bytes end.
    ends: Vec<usize>,
}

/// The keys at one moment: in order, and as columns.
#[derive(Debug)]
pub(crate) struct View {
    keys: Keys,
    /// Ids by rank.
    pub(crate) sorted: Vec<u32>,
    /// Rank of every id.
    pub(crate) rank: Vec<u32>,
    /// Values of every id, a column for each key column; texts as plain strings.
    columns: OnceLock<Vec<ArrayRef>>,
    converter: Arc<RowConverter>,
    types: Vec<DataType>,
}

impl KeyTable {
    /// A table for keys of these types.
    ///
    /// # Errors
    /// A type cannot be a key.
    pub(crate) fn new(types: Vec<DataType>) -> Result<Self, Error> {
        let options = SortOptions { descending: false, nulls_first: false };
        if let Some(other) = types.iter().find(|t| !is_key(t)) {
            let reason = format!("GROUP BY of {other} is not supported");
            return Err(Error::usage(reason, "group by texts, numbers, timestamps or booleans"));
        }
        let fields = types.iter().map(|t| SortField::new_with_options(plain(t), options)).collect();
        let converter = RowConverter::new(fields).map_err(|error| {
            Error::usage(format!("GROUP BY: {error}"), "group by texts, numbers, timestamps or booleans")
        })?;
        Ok(Self { converter: Arc::new(converter), types, inner: Mutex::default(), view: Mutex::new(None) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.lock().keys.ends.len()
    }

    /// Bytes held, about.
    pub(crate) fn memory(&self) -> usize {
        let inner = self.lock();
        let own = inner.memory();
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        own + view.as_ref().map_or(0, |view| view.memory())
    }

    /// A table without keys.
    pub(crate) fn emptied(&self) -> Self {
        Self {
            converter: Arc::clone(&self.converter),
            types: self.types.clone(),
            inner: Mutex::default(),
            view: Mutex::new(None),
        }
    }

    /// A table of some of the keys, and the new number of each, [`NONE`] for those that are not in it.
    pub(crate) fn retained(&self, keep: &[bool]) -> (Self, Vec<u32>) {
        let new = self.emptied();
        let (own, mut other) = (self.lock(), new.lock());
        let ids = 0..u32::try_from(own.keys.ends.len()).unwrap_or(NONE);
        let kept = |id: u32| keep.get(id as usize).is_some_and(|keep| *keep);
        let numbers = ids.map(|id| if kept(id) { other.intern(own.keys.get(id)) } else { NONE }).collect();
        drop(other);
        drop(own);
        (new, numbers)
    }

    /// The number of a key's bytes, a new one if they are new.
    pub(crate) fn intern(&self, bytes: &[u8]) -> u32 {
        self.lock().intern(bytes)
    }

    /// The keys in order and as columns, as of now.
    pub(crate) fn view(&self) -> Arc<View> {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = view.as_ref().filter(|known| known.rank.len() == self.len()) {
            return Arc::clone(known);
        }
        // Sorting must not keep the workers from adding keys.
        let keys = self.lock().keys.clone();
        let count = u32::try_from(keys.ends.len()).unwrap_or(NONE);
        let known = view.take();
        let before = known.as_ref().map_or(&[][..], |known| &known.sorted);
        let mut new: Vec<u32> = (u32::try_from(before.len()).unwrap_or(NONE)..count).collect();
        new.par_sort_unstable_by(|a, b| keys.get(*a).cmp(keys.get(*b)));
        let sorted = in_one_order(before, &new, |a, b| keys.get(a) < keys.get(b));
        let mut rank = vec![0; sorted.len()];
        sorted.iter().zip(0..).for_each(|(id, at)| rank[*id as usize] = at);
        let (converter, types) = (Arc::clone(&self.converter), self.types.clone());
        let made = Arc::new(View { keys, sorted, rank, columns: OnceLock::new(), converter, types });
        *view = Some(Arc::clone(&made));
        made
    }

    /// Columns of keys given by their bytes.
    ///
    /// # Errors
    /// The bytes are no key.
    pub(crate) fn columns_of(&self, keys: &[Vec<u8>]) -> Result<Vec<ArrayRef>, Error> {
        if self.types.is_empty() {
            return Ok(vec![]);
        }
        let parser = self.converter.parser();
        let columns = self.converter.convert_rows(keys.iter().map(|key| parser.parse(key))).map_err(failed)?;
        columns.iter().zip(&self.types).map(|(column, t)| cast(column, t).map_err(failed)).collect()
    }
}

pub(super) fn failed(error: arrow::error::ArrowError) -> Error {
    Error::source(format!("keys cannot be read back: {error}"), "report this as a bug")
}

/// Two ordered lists as one.
fn in_one_order(a: &[u32], b: &[u32], less: impl Fn(u32, u32) -> bool) -> Vec<u32> {
    let mut all = Vec::with_capacity(a.len() + b.len());
    let mut a = a.iter().copied().peekable();
    for b in b {
        while let Some(next) = a.next_if(|a| less(*a, *b)) {
            all.push(next);
        }
        all.push(*b);
    }
    all.extend(a);
    all
}

/// The type of a key in the table: texts without their dictionary.
pub(super) fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        other => other.clone(),
    }
}

/// Whether values of a type are told apart here.
fn is_key(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(unit, _) => *unit == TimeUnit::Microsecond,
        other => can_cast_types(&plain(other), &DataType::Utf8),
    }
}

impl Keys {
    fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let from = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[id]]
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

impl Inner {
    pub(super) fn memory(&self) -> usize {
        self.keys.memory() + self.index.capacity() * (size_of::<u32>() + 1)
    }

    pub(super) fn intern(&mut self, bytes: &[u8]) -> u32 {
        let Self { index, hasher, keys } = self;
        let hash = hasher.hash_one(bytes);
        if let Some(id) = index.find(hash, |id| keys.get(*id) == bytes) {
            return *id;
        }
        let id = u32::try_from(keys.ends.len()).unwrap_or(NONE);
        index.insert_unique(hash, id, |id| hasher.hash_one(keys.get(*id)));
        keys.bytes.extend_from_slice(bytes);
        keys.ends.push(keys.bytes.len());
        id
    }
}

impl View {
    /// Bytes of a key.
    pub(crate) fn key(&self, id: u32) -> &[u8] {
        self.keys.get(id)
    }

    fn memory(&self) -> usize {
        self.keys.memory() + (self.sorted.capacity() + self.rank.capacity()) * 4
    }

    fn all(&self) -> Result<&[ArrayRef], Error> {
        if let Some(columns) = self.columns.get() {
            return Ok(columns);
        }
        let columns = if self.types.is_empty() {
            vec![]
        } else {
            let parser = self.converter.parser();
            let ids = 0..u32::try_from(self.keys.ends.len()).unwrap_or(NONE);
            self.converter.convert_rows(ids.map(|id| parser.parse(self.keys.get(id)))).map_err(failed)?
        };
        Ok(self.columns.get_or_init(|| columns))
    }

    /// The key columns of ids.
    ///
    /// # Errors
    /// A key cannot be read back.
    pub(crate) fn columns(&self, ids: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let codes = Int32Array::from_iter_values(ids.iter().map(|id| id.cast_signed()));
        let column = |(column, data_type): (&ArrayRef, &DataType)| -> Result<ArrayRef, Error> {
            if !matches!(data_type, DataType::Dictionary(..)) {
                return take(column, &codes, None).map_err(failed);
            }
            let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
            let codes = match nulls {
                None => codes.clone(),
                Some(nulls) => {
                    Int32Array::from_iter(ids.iter().map(|id| nulls.is_valid(*id as usize).then_some(id.cast_signed())))
                }
            };
            // The values of a dictionary are never null.
            let values: ArrayRef = match nulls {
                None => Arc::clone(column),
                Some(_) => {
                    let texts = column.as_string::<i32>();
                    Arc::new(StringArray::new(texts.offsets().clone(), texts.values().clone(), None))
                }
            };
            Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(codes, values).map_err(failed)?))
        };
        self.all()?.iter().zip(&self.types).map(column).collect()
    }
}
