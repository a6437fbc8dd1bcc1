//! Which offsets may be committed: those behind acknowledged blocks only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Positions of the assigned partitions. Blocks may be acknowledged in any order; a partition's committable offset is the
/// end of the longest run of acknowledged blocks from its start.
#[derive(Debug, Default)]
pub struct Offsets {
    partitions: Mutex<HashMap<i32, Partition>>,
}

#[derive(Debug, Default)]
struct Partition {
    /// Spans not known to be behind acknowledged blocks, in order.
    open: VecDeque<Span>,
    /// Number of the first span in `open`.
    first: u64,
    /// The next offset a restart must read.
    committable: Option<i64>,
    committed: Option<i64>,
}

#[derive(Debug)]
struct Span {
    end: i64,
    acknowledged: bool,
}

/// One partition's part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    partition: i32,
    span: u64,
}

impl Offsets {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Partition>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block holds the partition's messages from where the last one ended up to, not including, `end`. Blocks of one
    /// partition must begin in order.
    pub fn begin(&self, partition: i32, end: i64) -> Ticket {
        let mut partitions = self.lock();
        let entry = partitions.entry(partition).or_default();
        entry.open.push_back(Span { end, acknowledged: false });
        Ticket { partition, span: entry.first + entry.open.len() as u64 - 1 }
    }

    /// The block is acknowledged. A ticket of a partition that has been forgotten since does nothing.
    pub fn acknowledge(&self, ticket: Ticket) {
        let mut partitions = self.lock();
        let Some(partition) = partitions.get_mut(&ticket.partition) else { return };
        let Some(index) = ticket.span.checked_sub(partition.first) else { return };
        if let Some(span) = partition.open.get_mut(index as usize) {
            span.acknowledged = true;
        }
        while let Some(span) = partition.open.pop_front_if(|span| span.acknowledged) {
            partition.first += 1;
            partition.committable = Some(span.end);
        }
    }

    /// The offsets to commit that have moved since [`Offsets::committed`], by partition.
    #[must_use]
    pub fn committable(&self) -> Vec<(i32, i64)> {
        let partitions = self.lock();
        let moved = partitions.iter().filter(|(_, partition)| partition.committable != partition.committed);
        let mut moved: Vec<(i32, i64)> =
            moved.filter_map(|(&id, partition)| Some((id, partition.committable?))).collect();
        moved.sort_unstable();
        moved
    }

    /// Every offset that may be committed, by partition, committed before or not.
    #[must_use]
    pub fn acknowledged(&self) -> Vec<(i32, i64)> {
        let partitions = self.lock();
        partitions.iter().filter_map(|(&id, partition)| Some((id, partition.committable?))).collect()
    }

    /// A commit has failed: everything is to be committed again.
    pub fn not_committed(&self) {
        self.lock().values_mut().for_each(|partition| partition.committed = None);
    }

    /// The broker has been sent these offsets.
    pub fn committed(&self, offsets: &[(i32, i64)]) {
        let mut partitions = self.lock();
        for (id, offset) in offsets {
            if let Some(partition) = partitions.get_mut(id) {
                partition.committed = Some(*offset);
            }
        }
    }

    /// Forgets all partitions: they are assigned to someone else. No block of theirs may be open.
    pub fn forget(&self) {
        self.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Blocks of one partition as a list of (end, acknowledged); the slow and obvious answer.
    fn naive(blocks: &[(i64, bool)]) -> Option<i64> {
        blocks.iter().take_while(|(_, acknowledged)| *acknowledged).last().map(|(end, _)| *end)
    }

    proptest! {
        #[test]
        fn nothing_is_committable_past_an_unacknowledged_block(
            steps in proptest::collection::vec((0i32..3, 1i64..100, any::<prop::sample::Index>(), 0u8..4), 1..60)
        ) {
            let offsets = Offsets::default();
            let mut blocks: Vec<Vec<(i64, bool)>> = vec![vec![]; 3];
            let mut open: Vec<(usize, usize, Ticket)> = Vec::new();
            let mut committed = [None; 3];
            for (partition, size, pick, step) in steps {
                let own = &mut blocks[partition as usize];
                match step {
                    0 | 1 => {
                        let end = own.last().map_or(0, |(end, _)| *end) + size;
                        open.push((partition as usize, own.len(), offsets.begin(partition, end)));
                        own.push((end, false));
                    }
                    2 if !open.is_empty() => {
                        let (partition, index, ticket) = open.swap_remove(pick.index(open.len()));
                        blocks[partition][index].1 = true;
                        offsets.acknowledge(ticket);
                    }
                    _ => {
                        let moved = offsets.committable();
                        for (partition, offset) in &moved {
                            committed[*partition as usize] = Some(*offset);
                        }
                        offsets.committed(&moved);
                    }
                }
                let want: Vec<(i32, i64)> = (0..3)
                    .filter(|&partition| naive(&blocks[partition]) != committed[partition])
                    .filter_map(|partition| Some((partition as i32, naive(&blocks[partition])?)))
                    .collect();
                prop_assert_eq!(offsets.committable(), want);
            }
        }
    }

    #[test]
    fn a_late_acknowledgement_of_a_forgotten_partition_does_nothing() {
        let offsets = Offsets::default();
        let ticket = offsets.begin(0, 10);
        offsets.forget();
        offsets.acknowledge(ticket);
        assert!(offsets.committable().is_empty());
    }
}
