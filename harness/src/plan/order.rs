//! The order of a sitting: every repetition runs each arm once, in an order drawn from a recorded seed.

/// One run of the sitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Position in the sitting, from 1.
    pub order: u32,
    /// Repetition, from 1.
    pub rep: u32,
    /// Index of the arm in the plan.
    pub arm: usize,
}

/// Interleaves `arms` over `reps` repetitions.
#[must_use]
pub fn interleave(arms: usize, reps: u32, seed: u64) -> Vec<Slot> {
    let mut draw = SplitMix(seed);
    let mut slots = Vec::with_capacity(arms * reps as usize);
    for rep in 1..=reps {
        let mut line: Vec<usize> = (0..arms).collect();
        for last in (1..arms).rev() {
            line.swap(last, draw.below(last as u64 + 1) as usize);
        }
        for arm in line {
            slots.push(Slot { order: slots.len() as u32 + 1, rep, arm });
        }
    }
    slots
}

/// SplitMix64 (Steele, Lea and Flood 2014): small, seeded, the same on every platform.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A draw from `0..bound`, by multiplication: biased by less than 2^-60 for the few arms of a sitting.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_repetition_runs_every_arm_once() {
        for seed in 0..50 {
            let slots = interleave(4, 3, seed);
            assert_eq!(slots.len(), 12);
            for (rep, line) in slots.chunks(4).enumerate() {
                let mut arms: Vec<usize> = line.iter().map(|slot| slot.arm).collect();
                arms.sort_unstable();
                assert_eq!(arms, [0, 1, 2, 3]);
                assert!(line.iter().all(|slot| slot.rep as usize == rep + 1));
            }
            assert!(slots.iter().enumerate().all(|(at, slot)| slot.order as usize == at + 1));
        }
    }

    #[test]
    fn the_seed_decides_the_order() {
        assert_eq!(interleave(5, 4, 7), interleave(5, 4, 7));
        assert!((0..20).any(|seed| interleave(5, 4, seed) != interleave(5, 4, 7)));
    }
}
