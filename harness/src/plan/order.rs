//! The order of a sitting: every repetition runs each arm once and the control once more, in an order drawn from a
//! recorded seed.

use weir_model::stats::Random;

/// Repetitions from which a sitting has a control: one run of each arm tells nothing apart.
const CONTROLLED: u32 = 2;

/// One run of the sitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Position in the sitting, from 1.
    pub order: u32,
    /// Repetition, from 1.
    pub rep: u32,
    /// Index of the arm in the plan.
    pub arm: usize,
    /// Whether it is a run of the control: the arm's second of this repetition.
    pub aa: bool,
}

/// Interleaves `arms` over `reps` repetitions. From two repetitions on, one arm, drawn too, is also its own control.
#[must_use]
pub fn interleave(arms: usize, reps: u32, seed: u64) -> Vec<Slot> {
    let mut random = Random::seeded(seed);
    let control = (reps >= CONTROLLED && arms > 0).then(|| random.below(arms));
    let mut slots = Vec::with_capacity((arms + 1) * reps as usize);
    for rep in 1..=reps {
        let mut line: Vec<(usize, bool)> = (0..arms).map(|arm| (arm, false)).collect();
        line.extend(control.map(|arm| (arm, true)));
        random.shuffle(&mut line);
        for (arm, aa) in line {
            slots.push(Slot { order: slots.len() as u32 + 1, rep, arm, aa });
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_repetition_runs_every_arm_once_and_the_control_twice() {
        for seed in 0..50 {
            let slots = interleave(4, 3, seed);
            assert_eq!(slots.len(), 15);
            let control: Vec<usize> = slots.iter().filter(|slot| slot.aa).map(|slot| slot.arm).collect();
            assert!(control.len() == 3 && control.iter().all(|arm| *arm == control[0]));
            for (rep, line) in slots.chunks(5).enumerate() {
                let mut arms: Vec<usize> = line.iter().filter(|slot| !slot.aa).map(|slot| slot.arm).collect();
                arms.sort_unstable();
                assert_eq!(arms, [0, 1, 2, 3]);
                assert!(line.iter().all(|slot| slot.rep as usize == rep + 1));
            }
            assert!(slots.iter().enumerate().all(|(at, slot)| slot.order as usize == at + 1));
        }
    }

    #[test]
    fn one_repetition_has_no_control() {
        assert_eq!(interleave(3, 1, 1).len(), 3);
        assert_eq!(interleave(0, 5, 1).len(), 0);
    }

    #[test]
    fn the_seed_decides_the_order_and_the_control() {
        assert_eq!(interleave(5, 4, 7), interleave(5, 4, 7));
        assert!((0..20).any(|seed| interleave(5, 4, seed) != interleave(5, 4, 7)));
        let control = |seed| interleave(3, 2, seed).iter().find(|slot| slot.aa).map(|slot| slot.arm);
        assert_eq!((0..50).filter_map(control).collect::<std::collections::BTreeSet<_>>().len(), 3);
    }
}
