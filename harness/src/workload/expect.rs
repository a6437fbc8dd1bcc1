//! What a target table must hold, in closed form: rows of the whole corpus, and sums and fingerprints of each batch.
//!
//! A column's fingerprint is the wrapping sum over a batch's rows of `(event_seq + 1) * h`, with `h` the XXH64 (seed 0)
//! of the row's text; of the tags joined by 0x01; of a quality, its bits. It changes when two rows swap their values.

use twox_hash::XxHash64;

use super::Tier;
use super::corpus::{self, Corpus, QUALITIES};
use super::spec::{IngestSpec, TierB};

/// What stands between two tags in the text that is hashed.
pub(super) const TAG_SEPARATOR: char = '\u{1}';

/// What a table holds of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchExpect {
    /// The batch.
    pub batch_id: u64,
    /// Distinct rows.
    pub rows: u64,
    /// Sum of `value`, wrapping.
    pub sum_value: i64,
    /// Sum of `value_scaled`, wrapping; 0 in tier A, whose table has no such column.
    pub sum_value_scaled: i64,
    /// Rows without a quality.
    pub null_quality: u64,
    /// Tags over all rows.
    pub tag_count: u64,
    /// Smallest `batch_ts`, in ms since the epoch.
    pub batch_ts_min_ms: i64,
    /// Largest `batch_ts`, in ms since the epoch.
    pub batch_ts_max_ms: i64,
    /// Fingerprint of `sensor`.
    pub sensor: u64,
    /// Fingerprint of `region`, a missing one being `''`.
    pub region: u64,
    /// Fingerprint of `name` in tier A, of `name_upper` in tier B.
    pub name: u64,
    /// Fingerprint of `unit`.
    pub unit: u64,
    /// Fingerprint of `tags`.
    pub tags: u64,
    /// Fingerprint of the qualities that are not null.
    pub quality: u64,
}

/// The first thing in which two batches differ.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("batch {batch_id}: {field}: expected {expected}, got {got}")]
pub struct Difference {
    /// The batch.
    pub batch_id: u64,
    /// Name of the field.
    pub field: &'static str,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub got: String,
}

impl BatchExpect {
    /// The first field in which `got` differs from this, in the order of the fields.
    #[must_use]
    pub fn first_difference(&self, got: &Self) -> Option<Difference> {
        let pairs = self.fields().into_iter().zip(got.fields());
        pairs.into_iter().find(|((_, expected), (_, got))| expected != got).map(|((field, expected), (_, got))| {
            Difference { batch_id: self.batch_id, field, expected: expected.to_string(), got: got.to_string() }
        })
    }

    fn fields(&self) -> [(&'static str, i128); 14] {
        [
            ("batch_id", self.batch_id.into()),
            ("rows", self.rows.into()),
            ("sum(value)", self.sum_value.into()),
            ("sum(value_scaled)", self.sum_value_scaled.into()),
            ("null quality", self.null_quality.into()),
            ("tag count", self.tag_count.into()),
            ("min(batch_ts)", self.batch_ts_min_ms.into()),
            ("max(batch_ts)", self.batch_ts_max_ms.into()),
            ("sensor", self.sensor.into()),
            ("region", self.region.into()),
            ("name", self.name.into()),
            ("unit", self.unit.into()),
            ("tags", self.tags.into()),
            ("quality", self.quality.into()),
        ]
    }
}

/// Expectations of a corpus.
#[derive(Debug, Clone)]
pub struct Expect {
    corpus: Corpus,
    tier_b: TierB,
    /// Per unit, whether tier B keeps its rows.
    unit_kept: Vec<bool>,
    /// Per hundredth, whether tier B keeps its rows.
    quality_kept: Vec<bool>,
    /// Hashes by tier of every name; of every unit; of every list of tags.
    names: [Vec<u64>; 2],
    units: Vec<u64>,
    tags: Vec<u64>,
    /// Tier B's rows of batch `0, 1, …` up to the period, then repeating.
    rows_b: Vec<u64>,
}

impl Expect {
    /// Expectations of a workload's corpus.
    #[must_use]
    pub fn new(spec: &IngestSpec) -> Self {
        let corpus = Corpus::new(spec);
        let tier_b = spec.tier_b.clone();
        let hashes = |texts: &[String]| texts.iter().map(|t| hash(t)).collect::<Vec<_>>();
        let uppers: Vec<String> = corpus.names().iter().map(|n| n.to_ascii_uppercase()).collect();
        let c = corpus.constants();
        let tags = (0..c.tag_names)
            .flat_map(|first| (0..c.max_tags).map(move |count| (first, count)))
            .map(|(first, count)| {
                let list: Vec<&str> = corpus.tags(first, count).collect();
                hash(&list.join(TAG_SEPARATOR.encode_utf8(&mut [0; 4])))
            })
            .collect();
        let mut expect = Self {
            names: [hashes(corpus.names()), hashes(&uppers)],
            units: hashes(corpus.units()),
            tags,
            unit_kept: corpus.units().iter().map(|u| *u != tier_b.drop_unit).collect(),
            quality_kept: (0..QUALITIES).map(|q| corpus::quality(q) >= tier_b.min_quality).collect(),
            rows_b: Vec::new(),
            tier_b,
            corpus,
        };
        expect.rows_b = (0..expect.period()).map(|id| expect.kept(Tier::B, id).count() as u64).collect();
        expect
    }

    /// The corpus.
    #[must_use]
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// Rows of the tier's table after the batches `0..batches`.
    #[must_use]
    pub fn rows(&self, tier: Tier, batches: u64) -> u64 {
        match tier {
            Tier::A => batches * u64::from(self.corpus.constants().events_per_batch),
            Tier::B => {
                let period = self.rows_b.len() as u64;
                let sum = |n: u64| self.rows_b.iter().take(n as usize).sum::<u64>();
                batches / period * sum(period) + sum(batches % period)
            }
        }
    }

    /// Rows of the tier's table for one batch.
    #[must_use]
    pub fn rows_of(&self, tier: Tier, id: u64) -> u64 {
        match tier {
            Tier::A => u64::from(self.corpus.constants().events_per_batch),
            Tier::B => self.rows_b[(id % self.rows_b.len() as u64) as usize],
        }
    }

    /// What the tier's table must hold of batch `id`.
    #[must_use]
    pub fn batch(&self, tier: Tier, id: u64) -> BatchExpect {
        let batch = self.corpus.batch(id);
        let names = &self.names[usize::from(tier == Tier::B)];
        let mut e = BatchExpect {
            batch_id: id,
            rows: 0,
            sum_value: 0,
            sum_value_scaled: 0,
            null_quality: 0,
            tag_count: 0,
            batch_ts_min_ms: batch.batch_ts_ms(),
            batch_ts_max_ms: batch.batch_ts_ms(),
            sensor: 0,
            region: 0,
            name: 0,
            unit: 0,
            tags: 0,
            quality: 0,
        };
        let mut weights = 0_u64;
        for event in self.kept(tier, id) {
            let weight = u64::from(event.seq) + 1;
            let add = |sum: &mut u64, h: u64| *sum = sum.wrapping_add(weight.wrapping_mul(h));
            e.rows += 1;
            weights += weight;
            e.sum_value = e.sum_value.wrapping_add(event.value);
            if tier == Tier::B {
                let scaled = event.value * self.tier_b.scale / (i64::from(event.seq) + 1);
                e.sum_value_scaled = e.sum_value_scaled.wrapping_add(scaled);
            }
            e.tag_count += u64::from(event.tag_count);
            add(&mut e.name, names[event.name as usize]);
            add(&mut e.unit, self.units[event.unit as usize]);
            let tags = event.first_tag * self.corpus.constants().max_tags + event.tag_count;
            add(&mut e.tags, self.tags[tags as usize]);
            match event.quality() {
                None => e.null_quality += 1,
                Some(quality) => add(&mut e.quality, quality.to_bits()),
            }
        }
        e.sensor = weights.wrapping_mul(hash(batch.sensor()));
        e.region = weights.wrapping_mul(hash(batch.region().unwrap_or_default()));
        e
    }

    /// The events of a batch that the tier's table has a row of.
    fn kept(&self, tier: Tier, id: u64) -> impl Iterator<Item = corpus::Event> {
        self.corpus.batch(id).events().filter(move |event| {
            tier == Tier::A
                || self.unit_kept[event.unit as usize] && event.hundredths.is_none_or(|q| self.quality_kept[q as usize])
        })
    }

    /// After so many batches, the draws that tier B's filter looks at repeat.
    fn period(&self) -> u64 {
        let c = self.corpus.constants();
        let rated = lcm(u64::from(c.quality_null_every), u64::from(QUALITIES));
        lcm(rated, c.units.len() as u64)
    }
}

/// `xxHash64` of ClickHouse.
fn hash(text: &str) -> u64 {
    XxHash64::oneshot(0, text.as_bytes())
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::spec::tests::repository_spec;

    #[test]
    fn rows_by_period_equal_rows_by_counting() {
        let expect = Expect::new(&repository_spec());
        assert_eq!(expect.period(), 200);
        let mut counted = 0;
        for id in 0..2_345 {
            assert_eq!(expect.rows(Tier::B, id), counted);
            let rows = expect.batch(Tier::B, id).rows;
            assert_eq!(expect.rows_of(Tier::B, id), rows);
            counted += rows;
        }
        assert_eq!(expect.rows(Tier::A, 2_345), 234_500);
    }

    #[test]
    fn every_batch_keeps_a_row() {
        let expect = Expect::new(&repository_spec());
        assert!((0..200).all(|id| expect.rows_of(Tier::B, id) > 0));
    }

    #[test]
    fn a_difference_names_its_field() {
        let expect = Expect::new(&repository_spec());
        let right = expect.batch(Tier::B, 11);
        assert_eq!(right.first_difference(&right), None);
        let wrong = BatchExpect { region: right.region ^ 1, quality: 0, ..right };
        let difference = right.first_difference(&wrong).unwrap();
        assert_eq!((difference.batch_id, difference.field), (11, "region"));
        assert_eq!(difference.expected, right.region.to_string());
        assert_eq!(difference.got, wrong.region.to_string());
    }

    /// The hash is XXH64 with seed 0: its published value of the empty text.
    #[test]
    fn the_hash_is_xxh64() {
        assert_eq!(hash(""), 0xef46_db37_51d8_e999);
    }
}
