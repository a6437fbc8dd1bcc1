//! Sums of doubles that do not depend on the order of their terms: exact, and rounded once.
//!
//! A sum is an integer multiple of a power of two. As long as it fits, that integer is one `i128`; beyond that it is spread
//! over limbs that cover every double.

/// Bits of a limb.
const LIMB: u32 = 32;
/// The least power of two in a double.
const LEAST: i32 = -1074;
/// Limbs from 2^-1074 to beyond 2^1024, with room for 2^63 terms.
const LIMBS: usize = 69;

/// An exact sum.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Exact {
    mantissa: i128,
    exponent: i32,
    wide: Option<Box<Wide>>,
    /// Infinities and NaN among the terms: bits 1, 2 and 4.
    special: u8,
}

/// Limbs of 32 bits, kept between additions with carries left in them.
#[derive(Debug, Clone, PartialEq)]
struct Wide {
    limbs: [i64; LIMBS],
    /// Additions since carries were brought forward.
    pending: u32,
}

impl Exact {
    /// Adds a term.
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let field = ((bits >> 52) & 0x7ff) as i32;
        let fraction = (bits & ((1 << 52) - 1)) as i64;
        if field == 0x7ff {
            self.special |= if fraction != 0 {
                4
            } else if value > 0.0 {
                1
            } else {
                2
            };
            return;
        }
        let (magnitude, exponent) = if field == 0 { (fraction, LEAST) } else { (fraction | 1 << 52, field - 1075) };
        if magnitude == 0 {
            return;
        }
        // Trailing zeros say nothing, and without them sums of decimals and integers stay narrow.
        let zeros = magnitude.trailing_zeros();
        let magnitude = magnitude >> zeros;
        let signed = i128::from(if value < 0.0 { -magnitude } else { magnitude });
        self.add_scaled(signed, exponent + zeros as i32);
    }

    fn add_scaled(&mut self, mantissa: i128, exponent: i32) {
        if let Some(wide) = &mut self.wide {
            wide.add(mantissa, exponent);
            return;
        }
        if self.mantissa == 0 {
            (self.mantissa, self.exponent) = (mantissa, exponent);
            return;
        }
        let lowest = self.exponent.min(exponent);
        let own = shifted(self.mantissa, self.exponent - lowest);
        let term = shifted(mantissa, exponent - lowest);
        match own.zip(term).and_then(|(own, term)| own.checked_add(term)) {
            Some(sum) => (self.mantissa, self.exponent) = (sum, lowest),
            None => {
                let wide = self.widen();
                wide.add(mantissa, exponent);
            }
        }
    }

    fn widen(&mut self) -> &mut Wide {
        let (mantissa, exponent) = (std::mem::take(&mut self.mantissa), self.exponent);
        self.wide.get_or_insert_with(|| {
            let mut wide = Box::new(Wide { limbs: [0; LIMBS], pending: 0 });
            wide.add(mantissa, exponent);
            wide
        })
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.special |= other.special;
        match &other.wide {
            None if other.mantissa == 0 => {}
            None => self.add_scaled(other.mantissa, other.exponent),
            Some(terms) => self.widen().merge(terms),
        }
    }

    /// The sum, rounded to the nearest double, ties to even.
    pub(crate) fn value(&self) -> f64 {
        match self.special {
            0 => {}
            1 => return f64::INFINITY,
            2 => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        match &self.wide {
            Some(wide) => wide.value(),
            // The product is exact unless it is subnormal or too large.
            None if self.mantissa == 0 => 0.0,
            None if (-900..800).contains(&self.exponent) => self.mantissa as f64 * power(self.exponent),
            None => {
                let mut wide = Wide { limbs: [0; LIMBS], pending: 0 };
                wide.add(self.mantissa, self.exponent);
                wide.value()
            }
        }
    }

    /// The sum as the nearest double and what that leaves.
    pub(crate) fn pair(&self) -> (f64, f64) {
        let high = self.value();
        if !high.is_finite() {
            return (high, 0.0);
        }
        let mut rest = self.clone();
        rest.add(-high);
        (high, rest.value())
    }

    /// Appends the sum.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.special | if self.wide.is_some() { 8 } else { 0 });
        match &self.wide {
            None => {
                out.extend_from_slice(&self.mantissa.to_le_bytes());
                out.extend_from_slice(&self.exponent.to_le_bytes());
            }
            Some(wide) => wide.limbs.iter().for_each(|limb| out.extend_from_slice(&limb.to_le_bytes())),
        }
    }

    /// Reads a sum.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        let special = flags & 7;
        if flags & 8 == 0 {
            let (mantissa, rest) = rest.split_first_chunk::<16>()?;
            let (exponent, rest) = rest.split_first_chunk::<4>()?;
            *bytes = rest;
            let exponent = i32::from_le_bytes(*exponent);
            if !(LEAST..=1100).contains(&exponent) {
                return None;
            }
            return Some(Self { mantissa: i128::from_le_bytes(*mantissa), exponent, wide: None, special });
        }
        let mut limbs = [0; LIMBS];
        let mut rest = rest;
        for limb in &mut limbs {
            let (own, behind) = rest.split_first_chunk::<8>()?;
            *limb = i64::from_le_bytes(*own);
            rest = behind;
        }
        *bytes = rest;
        let mut wide = Wide { limbs, pending: 0 };
        wide.carry();
        Some(Self { mantissa: 0, exponent: 0, wide: Some(Box::new(wide)), special })
    }
}

/// `value · 2^by`, when it fits.
fn shifted(value: i128, by: i32) -> Option<i128> {
    if by == 0 {
        return Some(value);
    }
    let free = value.unsigned_abs().leading_zeros() as i32 - 1;
    (by < free).then(|| value << by)
}

/// `2^exponent` for a normal double.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

impl Wide {
    fn add(&mut self, mantissa: i128, exponent: i32) {
        let at = (exponent - LEAST) as u32;
        let (limb, shift) = ((at / LIMB) as usize, at % LIMB);
        let negative = mantissa < 0;
        let magnitude = mantissa.unsigned_abs();
        // 128 bits moved by up to 31 cover five limbs.
        let low = (magnitude & u128::from(u64::MAX)) << shift;
        let high = (magnitude >> 64) << shift;
        let mut put = |limb: usize, value: u64| {
            if let Some(own) = self.limbs.get_mut(limb) {
                *own += if negative { -(value as i64) } else { value as i64 };
            }
        };
        for part in 0..3 {
            put(limb + part, (low >> (32 * part)) as u64 & 0xffff_ffff);
            put(limb + 2 + part, (high >> (32 * part)) as u64 & 0xffff_ffff);
        }
        self.pending += 2;
        if self.pending > 1 << 28 {
            self.carry();
        }
    }

    fn merge(&mut self, other: &Self) {
        self.carry();
        let mut other = other.clone();
        other.carry();
        self.limbs.iter_mut().zip(other.limbs).for_each(|(own, term)| *own += term);
        self.carry();
    }

    /// Brings every limb but the last into 0..2^32.
    fn carry(&mut self) {
        let mut carry = 0_i64;
        for limb in &mut self.limbs[..LIMBS - 1] {
            let sum = i128::from(*limb) + i128::from(carry);
            *limb = (sum & 0xffff_ffff) as i64;
            carry = (sum >> LIMB) as i64;
        }
        self.limbs[LIMBS - 1] = self.limbs[LIMBS - 1].saturating_add(carry);
        self.pending = 0;
    }

    fn value(&self) -> f64 {
        let mut own = self.clone();
        own.carry();
        let negative = own.limbs[LIMBS - 1] < 0;
        if negative {
            own.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            own.carry();
        }
        let Some(top) = own.limbs.iter().rposition(|limb| *limb != 0) else { return 0.0 };
        // Three limbs hold at least 65 bits below the top one; the rest only tells a tie from more.
        let mut bits = 0_u128;
        for part in 0..3 {
            let limb = top.checked_sub(part).map_or(0, |at| own.limbs[at] as u64);
            bits = bits << LIMB | u128::from(limb);
        }
        if top >= 3 && own.limbs[..top - 2].iter().any(|limb| *limb != 0) {
            bits |= 1;
        }
        let magnitude = round(bits, LEAST + LIMB as i32 * (top as i32 - 2));
        if negative { -magnitude } else { magnitude }
    }
}

/// `bits · 2^exponent` to the nearest double, ties to even; the last bit may stand for smaller ones.
fn round(bits: u128, exponent: i32) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    let length = 128 - bits.leading_zeros() as i32;
    // The double's last bit: 53 bits down from the first, and never below the least power.
    let last = (length + exponent - 53).max(LEAST);
    let drop = last - exponent;
    let kept = if drop <= 0 {
        bits << -drop
    } else if drop >= 128 {
        0
    } else {
        let (kept, rest, half) = (bits >> drop, bits & ((1 << drop) - 1), 1_u128 << (drop - 1));
        kept + u128::from(rest > half || (rest == half && kept & 1 == 1))
    };
    // Up to 2^53, so exact; the product is exact too, or infinite.
    let kept = kept as f64;
    if last < -1000 {
        kept * power(-1000) * power(last + 1000)
    } else if last > 1000 {
        kept * power(1000) * power(last - 1000)
    } else {
        kept * power(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(values: &[f64]) -> Exact {
        let mut sum = Exact::default();
        values.iter().for_each(|v| sum.add(*v));
        sum
    }

    #[test]
    fn sums_are_exact() {
        assert_eq!(sum(&[0.1; 10]).value(), 1.0);
        assert_eq!(sum(&[1e300, 1.0, -1e300]).value(), 1.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]).value(), f64::MAX);
        assert_eq!(sum(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
        assert_eq!(sum(&[5e-324, 5e-324]).value(), 1e-323);
        assert_eq!(sum(&[1e300, 5e-324, -1e300]).value(), 5e-324);
        assert_eq!(sum(&[9_007_199_254_740_992.0, 1.0]).value(), 9_007_199_254_740_992.0);
        assert_eq!(sum(&[9_007_199_254_740_992.0, 1.0, 5e-324]).value(), 9_007_199_254_740_994.0);
        assert_eq!(sum(&[1.0, f64::INFINITY]).value(), f64::INFINITY);
        assert!(sum(&[f64::NEG_INFINITY, f64::INFINITY]).value().is_nan());
        assert_eq!(sum(&[]).value(), 0.0);
        assert_eq!(sum(&[-1.5, 0.25]).value(), -1.25);
    }

    proptest! {
        #[test]
        fn order_grouping_and_encoding_change_nothing(
            values in proptest::collection::vec(
                prop_oneof![any::<f64>(), -1e6..1e6_f64, (-1000_i32..1000).prop_map(|v| f64::from(v) / 100.0)], 0..40),
            split in 0_usize..40,
        ) {
            let straight = sum(&values);
            let mut turned: Vec<f64> = values.clone();
            turned.reverse();
            let split = split.min(values.len());
            let mut parts = sum(&values[split..]);
            parts.merge(&sum(&values[..split]));
            let mut bytes = Vec::new();
            parts.encode(&mut bytes);
            let mut rest = bytes.as_slice();
            let read = Exact::decode(&mut rest).unwrap();
            prop_assert!(rest.is_empty());
            let expected = straight.value().to_bits();
            for other in [sum(&turned).value(), parts.value(), read.value()] {
                prop_assert!(other.to_bits() == expected || (other.is_nan() && straight.value().is_nan()));
            }
            // What the two ways of holding a sum say is the same.
            let mut wide = Exact::default();
            wide.widen();
            values.iter().for_each(|v| wide.add(*v));
            prop_assert!(wide.value().to_bits() == expected || wide.value().is_nan() || straight.value() == 0.0);
        }

        #[test]
        fn two_terms_round_as_the_processor_does(a in any::<f64>(), b in any::<f64>()) {
            let exact = sum(&[a, b]).value();
            let own = a + b;
            prop_assert!(exact == own || (exact.is_nan() && own.is_nan()), "{a} + {b} = {own}, not {exact}");
        }
    }
}
