//! Random choices from a seed, the same everywhere.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed ^ 0x9E37_79B9_7F4A_7C15);
        random.below(2);
        random
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// `count` of them, each at most once, in their order.
    pub(crate) fn some<T: Copy>(&mut self, from: &[T], count: usize) -> Vec<T> {
        let mut left = count.min(from.len());
        let mut out = Vec::new();
        for (position, one) in from.iter().enumerate() {
            if self.below(from.len() - position) < left {
                out.push(*one);
                left -= 1;
            }
        }
        out
    }
}
