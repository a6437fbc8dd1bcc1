//! The order of a sitting: every repetition runs each arm once, in an order drawn from a recorded seed.

use weir_model::stats::Random;

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
    let mut random = Random::seeded(seed);
    let mut slots = Vec::with_capacity(arms * reps as usize);
    for rep in 1..=reps {
        let mut line: Vec<usize> = (0..arms).collect();
        random.shuffle(&mut line);
        for arm in line {
            slots.push(Slot { order: slots.len() as u32 + 1, rep, arm });
        }
    }
    slots
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
