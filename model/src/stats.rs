//! Statistics for a handful of whole runs. The unit is the run, so samples are small and nothing is assumed normal.

use std::cmp::Ordering;

/// Resamples behind an interval or a sampled permutation test.
const RESAMPLES: usize = 10_000;

/// Splits of two samples up to which every one is tried instead of sampling.
const EXACT_SPLITS: u64 = 20_000;

/// Two arms are told apart at this two-sided level. A permutation test reaches it with four runs each (0.029), not with
/// three (0.1).
pub const LEVEL: f64 = 0.05;

/// Halvings behind [`smallest_shift`]: a difference is given to a ten-thousandth.
const HALVINGS: u32 = 14;

/// A small seeded generator (SplitMix64), so that an interval is the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Puts `items` in an order drawn from the generator.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    values
}

/// The value below which a share `q` of `values` lies, interpolated between neighbours; none of nothing.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let values = sorted(values);
    let last = values.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (low, share) = (place.floor() as usize, place.fract());
    let high = (low + 1).min(last);
    Some(values[low] + (values[high] - values[low]) * share)
}

/// The middle value; none of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Lowest and highest value; none of nothing.
#[must_use]
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let values = sorted(values);
    Some((*values.first()?, *values.last()?))
}

/// Highest less lowest, as a share of the median; none of fewer than two values or around zero.
#[must_use]
pub fn spread(values: &[f64]) -> Option<f64> {
    let ((low, high), middle) = (range(values)?, median(values)?);
    (values.len() > 1 && middle != 0.0).then(|| (high - low) / middle.abs())
}

/// 95 % percentile bootstrap interval of the median; none of fewer than three values. Up to five values every resample
/// is taken; from six on, as many as `RESAMPLES` drawn from the seed.
#[must_use]
pub fn median_ci95(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    let n = values.len();
    if n < 3 {
        return None;
    }
    let every = n.checked_pow(n as u32).filter(|every| *every <= RESAMPLES);
    let mut random = Random::seeded(seed);
    let mut resample = vec![0.0; n];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for at in 0..every.unwrap_or(RESAMPLES) {
        let mut rest = at;
        for slot in &mut resample {
            *slot = values[if every.is_some() { rest % n } else { random.below(n) }];
            rest /= n;
        }
        medians.push(median(&resample)?);
    }
    Some((quantile(&medians, 0.025)?, quantile(&medians, 0.975)?))
}

/// 95 % percentile bootstrap interval of how far the median of `b` lies above that of `a`, as a share of the latter; none
/// of fewer than three values on a side, or around zero.
#[must_use]
pub fn difference_ci95(a: &[f64], b: &[f64], seed: u64) -> Option<(f64, f64)> {
    if a.len() < 3 || b.len() < 3 {
        return None;
    }
    let mut random = Random::seeded(seed);
    let mut drawn = |values: &[f64]| {
        let resample: Vec<f64> = values.iter().map(|_| values[random.below(values.len())]).collect();
        median(&resample)
    };
    let mut differences = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let (ours, theirs) = (drawn(a)?, drawn(b)?);
        if ours == 0.0 {
            return None;
        }
        differences.push((theirs - ours) / ours.abs());
    }
    Some((quantile(&differences, 0.025)?, quantile(&differences, 0.975)?))
}

/// The smallest relative difference that [`permutation_p`] tells apart, at [`LEVEL`], between `values` and the same
/// values moved by it: what runs this noisy can show. None if they cannot show even a doubling.
#[must_use]
pub fn smallest_shift(values: &[f64]) -> Option<f64> {
    let shows = |shift: f64| {
        let moved: Vec<f64> = values.iter().map(|value| value * (1.0 + shift)).collect();
        permutation_p(values, &moved, 1) <= LEVEL
    };
    if median(values)? == 0.0 || !shows(1.0) {
        return None;
    }
    let (mut hidden, mut shown) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(hidden, shown);
        if shows(middle) {
            shown = middle;
        } else {
            hidden = middle;
        }
    }
    Some(shown)
}

/// Two-sided permutation test of the difference of means: how often chance alone splits the pooled runs at least as
/// far apart. Exact for small samples, seeded otherwise; 1 when either side is empty.
#[must_use]
pub fn permutation_p(a: &[f64], b: &[f64], seed: u64) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let pooled: Vec<f64> = a.iter().chain(b).copied().collect();
    let total: f64 = pooled.iter().sum();
    let (n, m) = (a.len() as f64, b.len() as f64);
    let apart = |first: f64| (first / n - (total - first) / m).abs();
    let observed = apart(a.iter().sum());
    let tolerance = observed * 1e-12;
    let (mut extreme, mut tried) = (0_u64, 0_u64);
    let mut count = |first: f64| {
        tried += 1;
        extreme += u64::from(apart(first) >= observed - tolerance);
    };
    if splits(pooled.len() as u64, a.len() as u64) <= EXACT_SPLITS {
        each_split(&pooled, a.len(), 0.0, &mut count);
    } else {
        let mut random = Random::seeded(seed);
        let mut order = pooled.clone();
        count(a.iter().sum());
        for _ in 0..RESAMPLES {
            random.shuffle(&mut order);
            count(order[..a.len()].iter().sum());
        }
    }
    extreme as f64 / tried as f64
}

/// The least `p` that [`permutation_p`] can give for samples of these sizes.
#[must_use]
pub fn least_p(n: usize, m: usize) -> f64 {
    if n == 0 || m == 0 {
        return 1.0;
    }
    let sides = if n == m { 2.0 } else { 1.0 };
    (sides / splits((n + m) as u64, n as u64) as f64).min(1.0)
}

/// Ways to choose `k` of `n`, saturating.
fn splits(n: u64, k: u64) -> u64 {
    (0..k.min(n - k))
        .try_fold(1_u64, |ways, at| ways.checked_mul(n - at).map(|ways| ways / (at + 1)))
        .unwrap_or(u64::MAX)
}

/// Calls `count` with the sum of every choice of `take` of `values`.
fn each_split(values: &[f64], take: usize, sum: f64, count: &mut impl FnMut(f64)) {
    if take == 0 {
        count(sum);
        return;
    }
    for at in 0..=(values.len() - take) {
        each_split(&values[at + 1..], take - 1, sum + values[at], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_against_three_reaches_a_tenth_and_four_against_four_a_verdict() {
        assert!(least_p(3, 3) > LEVEL && least_p(4, 4) <= LEVEL);
        let (slow, fast) = ([2.0, 2.1, 2.2], [1.0, 1.1, 1.2]);
        assert!((permutation_p(&slow, &fast, 1) - 0.1).abs() < 1e-12);
        assert!((least_p(3, 3) - 0.1).abs() < 1e-12);
        assert!(permutation_p(&[1.0, 2.1, 2.2], &[1.1, 1.2, 2.0], 1) > LEVEL);
        assert_eq!(permutation_p(&[], &fast, 1), 1.0);
    }

    #[test]
    fn equal_samples_are_never_apart() {
        assert_eq!(permutation_p(&[1.0; 5], &[1.0; 5], 1), 1.0);
    }

    #[test]
    fn large_samples_are_tested_by_chance_with_a_seed() {
        let a: Vec<f64> = (0..20).map(f64::from).collect();
        let b: Vec<f64> = (0..20).map(|value| f64::from(value) + 15.0).collect();
        assert!(permutation_p(&a, &b, 7) < 0.01);
        assert_eq!(permutation_p(&a, &b, 7), permutation_p(&a, &b, 7));
    }

    #[test]
    fn quiet_runs_show_less_than_noisy_ones_and_three_show_nothing() {
        let quiet = [1.0, 1.01, 0.99, 1.005, 0.995];
        let noisy = [1.0, 1.1, 0.9, 1.05, 0.95];
        let (small, large) = (smallest_shift(&quiet).unwrap(), smallest_shift(&noisy).unwrap());
        assert!(small < 0.03 && large > 5.0 * small && large < 0.3, "{small} {large}");
        assert_eq!(smallest_shift(&quiet[..3]), None);
        let moved = quiet.map(|value| value * (1.0 + small));
        assert!(permutation_p(&quiet, &moved, 1) <= LEVEL);
    }

    #[test]
    fn the_interval_of_a_difference_holds_it() {
        let a = [1.0, 1.01, 0.99, 1.02, 0.98];
        let b = a.map(|value| value * 1.1);
        let (low, high) = difference_ci95(&a, &b, 3).unwrap();
        assert!(low < 0.1 && 0.1 < high && low > 0.04 && high < 0.16, "{low} {high}");
        assert_eq!(difference_ci95(&a, &b, 3), difference_ci95(&a, &b, 3));
        assert_eq!(difference_ci95(&a[..2], &b, 3), None);
    }

    #[test]
    fn one_run_has_no_spread_and_two_have_no_interval() {
        assert_eq!((median(&[]), spread(&[1.0]), median_ci95(&[1.0, 2.0], 1)), (None, None, None));
        assert_eq!(median(&[3.0, 1.0, 2.0, 10.0]), Some(2.5));
        assert_eq!(spread(&[9.0, 10.0, 11.0]), Some(0.2));
    }

    proptest! {
        #[test]
        fn the_interval_is_seeded_and_inside_the_range(values in prop::collection::vec(1.0..1e6_f64, 3..9), seed: u64) {
            let (low, high) = range(&values).unwrap();
            let (from, to) = median_ci95(&values, seed).unwrap();
            prop_assert!(low <= from && from <= to && to <= high);
            prop_assert_eq!(median_ci95(&values, seed), Some((from, to)));
        }

        #[test]
        fn a_test_has_no_sides_and_stays_in_bounds(
            a in prop::collection::vec(1.0..1e3_f64, 1..5),
            b in prop::collection::vec(1.0..1e3_f64, 1..5),
        ) {
            let p = permutation_p(&a, &b, 1);
            prop_assert!((p - permutation_p(&b, &a, 1)).abs() < 1e-12);
            prop_assert!(p >= least_p(a.len(), b.len()) - 1e-12 && p <= 1.0);
        }

        #[test]
        fn quantiles_do_not_cross(values in prop::collection::vec(-1e3..1e3_f64, 1..20), q in 0.0..1.0_f64) {
            prop_assert!(quantile(&values, q) <= quantile(&values, (q + 0.1).min(1.0)));
        }
    }
}
