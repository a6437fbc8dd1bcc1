//! Which slot each key has.

use hashbrown::HashMap;

use crate::state::keys::NONE;

/// A list becomes a map when it is longer than this times the slots in use,
const SPARSE: usize = 16;
/// and a map a list when it would be shorter than this times the slots in use.
const DENSE: usize = 4;
/// A list this short is kept as a list whatever it holds.
const SHORT: usize = 4_096;

/// Slots by key number: a list while most keys have one, else a map.
#[derive(Debug, Clone)]
pub(super) enum Slots {
    Dense {
        slots: Vec<u32>,
        used: usize,
    },
    Sparse {
        slots: HashMap<u32, u32>,
        /// Of a list with all the keys.
        length: usize,
    },
}

impl Default for Slots {
    fn default() -> Self {
        Self::Dense { slots: vec![], used: 0 }
    }
}

impl Slots {
    /// The slot of a key, [`NONE`] when it has none.
    #[inline]
    pub(super) fn get(&self, key: u32) -> u32 {
        match self {
            Self::Dense { slots, .. } => slots.get(key as usize).copied().unwrap_or(NONE),
            Self::Sparse { slots, .. } => slots.get(&key).copied().unwrap_or(NONE),
        }
    }

    /// Gives a key that has none a slot.
    pub(super) fn set(&mut self, key: u32, slot: u32) {
        let end = key as usize + 1;
        if let Self::Dense { slots, used } = self
            && end > slots.len()
            && end > SHORT.max(*used * SPARSE)
        {
            let length = slots.len();
            *self = Self::Sparse { slots: self.iter().collect(), length };
        }
        match self {
            Self::Dense { slots, used } => {
                if end > slots.len() {
                    slots.resize(end, NONE);
                }
                slots[key as usize] = slot;
                *used += 1;
            }
            Self::Sparse { slots, length } => {
                slots.insert(key, slot);
                *length = end.max(*length);
                if *length <= slots.len() * DENSE {
                    let mut list = vec![NONE; *length];
                    slots.iter().for_each(|(key, slot)| list[*key as usize] = *slot);
                    *self = Self::Dense { used: slots.len(), slots: list };
                }
            }
        }
    }

    /// Keys and their slots, keys ascending in a list.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let (list, map) = match self {
            Self::Dense { slots, .. } => (Some(slots), None),
            Self::Sparse { slots, .. } => (None, Some(slots)),
        };
        let listed = list.into_iter().flat_map(|slots| (0..).zip(slots.iter().copied()));
        let mapped = map.into_iter().flat_map(|map| map.iter().map(|(key, slot)| (*key, *slot)));
        listed.filter(|(_, slot)| *slot != NONE).chain(mapped)
    }

    /// Number of keys that have one.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Dense { used, .. } => *used,
            Self::Sparse { slots, .. } => slots.len(),
        }
    }

    /// The same slots under new key numbers.
    pub(super) fn renumbered(&self, new: &[u32]) -> Self {
        let mut renumbered = Self::default();
        for (key, slot) in self.iter() {
            if let Some(key) = new.get(key as usize).filter(|key| **key != NONE) {
                renumbered.set(*key, slot);
            }
        }
        renumbered
    }

    /// Bytes held, about.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Dense { slots, .. } => slots.capacity() * size_of::<u32>(),
            Self::Sparse { slots, .. } => slots.capacity() * (2 * size_of::<u32>() + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn slots_are_found_again(
            keys in proptest::collection::vec(prop_oneof![0_u32..50, 5_000_u32..5_050, 0_u32..2_000_000], 0..60),
            all in 0_u32..9_000,
        ) {
            // A stretch of all keys makes a list of a map.
            let keys: Vec<u32> = keys.into_iter().chain(0..all).chain([100_000]).collect();
            let (mut slots, mut model) = (Slots::default(), BTreeMap::new());
            for (slot, key) in keys.iter().enumerate() {
                if slots.get(*key) == NONE {
                    slots.set(*key, slot as u32);
                    model.insert(*key, slot as u32);
                }
            }
            prop_assert_eq!(slots.iter().collect::<BTreeMap<_, _>>(), model.clone());
            prop_assert_eq!(slots.len(), model.len());
            prop_assert!(model.iter().all(|(key, slot)| slots.get(*key) == *slot));
        }
    }
}
