//! Pairs of rows with equal keys whose times lie in a band.

use super::side::Entry;
use crate::state::keys::NONE;

/// Calls `pair` for every left and right row of equal keys with `lower ≤ right − left ≤ upper`. Both lists are in order; keys
/// with a null equal nothing.
pub(super) fn pairs<'e>(
    left: &'e [Entry],
    right: &'e [Entry],
    (lower, upper): (i64, i64),
    mut pair: impl FnMut(&'e Entry, &'e Entry),
) {
    let (mut l, mut r) = (0, 0);
    while l < left.len() && r < right.len() {
        let key = left[l].key;
        if key == NONE {
            return;
        }
        if key < right[r].key {
            l += left[l..].partition_point(|entry| entry.key == key);
            continue;
        }
        if key > right[r].key {
            let other = right[r].key;
            r += right[r..].partition_point(|entry| entry.key == other);
            continue;
        }
        let lefts = l + left[l..].partition_point(|entry| entry.key == key);
        let rights = r + right[r..].partition_point(|entry| entry.key == key);
        let (mut from, own) = (r, &right[..rights]);
        for entry in &left[l..lefts] {
            let (first, last) = (entry.time.saturating_add(lower), entry.time.saturating_add(upper));
            while from < rights && own[from].time < first {
                from += 1;
            }
            for other in own[from..].iter().take_while(|other| other.time <= last) {
                pair(entry, other);
            }
        }
        (l, r) = (lefts, rights);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(rows: &[(u32, i64)]) -> Vec<Entry> {
        let entry = |(position, (key, time)): (usize, &(u32, i64))| Entry {
            key: if *key == 4 { NONE } else { *key },
            time: *time,
            position: position as u64,
            at: (0, position as u32),
        };
        let mut entries: Vec<Entry> = rows.iter().enumerate().map(entry).collect();
        entries.sort_unstable();
        entries
    }

    proptest! {
        #[test]
        fn every_pair_in_the_band_is_found_once(
            left in proptest::collection::vec((0_u32..5, -20_i64..20), 0..30),
            right in proptest::collection::vec((0_u32..5, -20_i64..20), 0..30),
            lower in -10_i64..10, upper in -10_i64..10,
        ) {
            let (left, right) = (entries(&left), entries(&right));
            let mut found = Vec::new();
            pairs(&left, &right, (lower, upper), |l, r| found.push((l.position, r.position)));
            let mut naive = Vec::new();
            for l in &left {
                for r in &right {
                    if l.key == r.key && l.key != NONE && (lower..=upper).contains(&(r.time - l.time)) {
                        naive.push((l.position, r.position));
                    }
                }
            }
            found.sort_unstable();
            naive.sort_unstable();
            prop_assert_eq!(found, naive);
        }
    }
}
