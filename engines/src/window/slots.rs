//! Which slot each key has.

use hashbrown::HashMap;

use crate::state::keys::NONE;

/// Keys beyond this times the slots in use are looked up in a map.
const SPARSE: usize = 8;
/// A list this short is kept as a list whatever it holds.
const SHORT: usize = 4_096;

/// Slots by key number: a list while most keys have one, else a map.
#[derive(Debug, Clone)]
pub(super) enum Slots {
    Dense { slots: Vec<u32>, used: usize },
    Sparse(HashMap<u32, u32>),
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
            Self::Sparse(map) => map.get(&key).copied().unwrap_or(NONE),
        }
    }

    /// Gives a key that has none a slot.
    pub(super) fn set(&mut self, key: u32, slot: u32) {
        if let Self::Dense { slots, used } = self {
            let length = key as usize + 1;
            if length > slots.len() && length > SHORT && length > *used * SPARSE {
                *self = Self::Sparse(self.iter().collect());
            } else {
                if length > slots.len() {
                    slots.resize(length.max(slots.len() * 2).min(length + (1 << 20)), NONE);
                }
                slots[key as usize] = slot;
                *used += 1;
                return;
            }
        }
        if let Self::Sparse(map) = self {
            map.insert(key, slot);
        }
    }

    /// Keys and their slots, keys ascending in a list.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let (list, map) = match self {
            Self::Dense { slots, .. } => (Some(slots), None),
            Self::Sparse(map) => (None, Some(map)),
        };
        let listed = list.into_iter().flat_map(|slots| (0..).zip(slots.iter().copied()));
        let mapped = map.into_iter().flat_map(|map| map.iter().map(|(key, slot)| (*key, *slot)));
        listed.filter(|(_, slot)| *slot != NONE).chain(mapped)
    }

    /// Number of keys that have one.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Dense { used, .. } => *used,
            Self::Sparse(map) => map.len(),
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
            Self::Sparse(map) => map.capacity() * (2 * size_of::<u32>() + 1),
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
        fn slots_are_found_again(keys in proptest::collection::vec(prop_oneof![0_u32..50, 0_u32..2_000_000], 0..60)) {
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
