//! The generator: every message of the corpus as a pure function of its `batch_id`.
//!
//! What lies between the two marks decides every byte of the corpus and is part of `dataset_version`.

use super::spec::{Generator, IngestSpec};

// generator:begin
/// Batch ids lie below this, so that no product of a formula overflows.
pub const MAX_BATCHES: u64 = 1 << 40;

/// Qualities are drawn as hundredths from `0..QUALITIES`.
pub const QUALITIES: u32 = 100;

/// The corpus: constants and the texts they name.
#[derive(Debug, Clone)]
pub struct Corpus {
    constants: Generator,
    sensors: Vec<String>,
    regions: Vec<String>,
    names: Vec<String>,
    tags: Vec<String>,
}

impl Corpus {
    /// The corpus of a workload.
    #[must_use]
    pub fn new(spec: &IngestSpec) -> Self {
        let constants = spec.generator.clone();
        let texts = |prefix: &str, n: u32| (0..n).map(|i| format!("{prefix}{i}")).collect();
        Self {
            sensors: texts("sensor-", constants.sensors),
            regions: texts("region-", constants.regions),
            names: texts("metric_", constants.names),
            tags: texts("tag-", constants.tag_names),
            constants,
        }
    }

    /// The constants it is made of.
    #[must_use]
    pub fn constants(&self) -> &Generator {
        &self.constants
    }

    /// Every metric name, by [`Event::name`].
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Every unit, by [`Event::unit`].
    #[must_use]
    pub fn units(&self) -> &[String] {
        &self.constants.units
    }

    /// The tags of an event whose first is `first` and which has `count` of them.
    pub fn tags(&self, first: u32, count: u32) -> impl ExactSizeIterator<Item = &str> {
        (0..count).map(move |j| self.tags[((first + j) % self.constants.tag_names) as usize].as_str())
    }

    /// The batch of this id, below [`MAX_BATCHES`].
    #[must_use]
    pub fn batch(&self, id: u64) -> Batch<'_> {
        Batch { corpus: self, id }
    }
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    corpus: &'a Corpus,
    id: u64,
}

impl<'a> Batch<'a> {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The sensor that sent it.
    #[must_use]
    pub fn sensor(&self) -> &'a str {
        &self.corpus.sensors[(self.id % u64::from(self.corpus.constants.sensors)) as usize]
    }

    /// The sensor's region, where it has one.
    #[must_use]
    pub fn region(&self) -> Option<&'a str> {
        let c = &self.corpus.constants;
        let known = !self.id.is_multiple_of(u64::from(c.region_null_every));
        known.then(|| self.corpus.regions[(self.id % u64::from(c.regions)) as usize].as_str())
    }

    /// Event time, in ms since the epoch.
    #[must_use]
    pub fn batch_ts_ms(&self) -> i64 {
        self.corpus.constants.base_ts_ms + self.id as i64
    }

    /// Its events in the order of their `seq`.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event> + use<'a> {
        let (corpus, id) = (self.corpus, self.id);
        (0..corpus.constants.events_per_batch).map(move |seq| Event::new(&corpus.constants, id, seq))
    }
}

/// One event, its texts as indices into the corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Position in the batch.
    pub seq: u32,
    /// Index of its name in [`Corpus::names`].
    pub name: u32,
    /// Index of its unit in [`Corpus::units`].
    pub unit: u32,
    /// Measured value.
    pub value: i64,
    /// Quality in hundredths, where it has one.
    pub hundredths: Option<u32>,
    /// Index of its first tag, below `tag_names`.
    pub first_tag: u32,
    /// How many tags it has.
    pub tag_count: u32,
}

impl Event {
    fn new(c: &Generator, id: u64, seq: u32) -> Self {
        let s = u64::from(seq);
        let rated = !(id + s).is_multiple_of(u64::from(c.quality_null_every));
        Self {
            seq,
            name: ((id * 31 + s) % u64::from(c.names)) as u32,
            unit: ((id * 7 + s) % c.units.len() as u64) as u32,
            value: ((id * 1_000_003 + s * 97) % c.value_modulus) as i64,
            hundredths: rated.then(|| ((id * 13 + s * 7) % u64::from(QUALITIES)) as u32),
            first_tag: ((id + s) % u64::from(c.tag_names)) as u32,
            tag_count: ((id + s) % u64::from(c.max_tags)) as u32,
        }
    }

    /// Quality from 0 to 1, where it has one.
    #[must_use]
    pub fn quality(&self) -> Option<f64> {
        self.hundredths.map(quality)
    }
}

/// The quality that is so many hundredths.
#[must_use]
pub fn quality(hundredths: u32) -> f64 {
    f64::from(hundredths) / 100.0
}
// generator:end

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::spec::tests::repository_spec;

    /// The formulas written a second time, in the plainest way, over ids that reach every residue.
    #[test]
    fn draws_follow_the_published_formulas() {
        let corpus = Corpus::new(&repository_spec());
        let units = ["celsius", "pascal", "percent", "drop", "volt", "ampere", "lux", "hertz"];
        for id in (0..3_000_u64).chain([999_999, 123_456_789]) {
            let batch = corpus.batch(id);
            assert_eq!(batch.sensor(), format!("sensor-{}", id % 1024));
            let region = if id % 10 == 0 { None } else { Some(format!("region-{}", id % 7)) };
            assert_eq!(batch.region().map(str::to_owned), region);
            assert_eq!(batch.batch_ts_ms(), 1_767_225_600_000 + i64::try_from(id).unwrap());
            assert_eq!(batch.events().len(), 100);
            for (seq, event) in (0_u64..).zip(batch.events()) {
                assert_eq!(u64::from(event.seq), seq);
                assert_eq!(corpus.names()[event.name as usize], format!("metric_{}", (id * 31 + seq) % 32));
                assert_eq!(corpus.units()[event.unit as usize], units[((id * 7 + seq) % 8) as usize]);
                let value = (u128::from(id) * 1_000_003 + u128::from(seq) * 97) % 2_147_483_647;
                assert_eq!(event.value as u128, value);
                let quality = if (id + seq) % 5 == 0 { None } else { Some(((id * 13 + seq * 7) % 100) as f64 / 100.0) };
                assert_eq!(event.quality(), quality);
                let tags: Vec<String> = (0..(id + seq) % 4).map(|j| format!("tag-{}", (id + seq + j) % 16)).collect();
                assert!(corpus.tags(event.first_tag, event.tag_count).eq(tags.iter().map(String::as_str)));
            }
        }
    }
}
