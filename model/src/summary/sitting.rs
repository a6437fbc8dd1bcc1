//! What a sitting as a whole could tell apart.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::flag::Flag;
use crate::metric::Metric;
use crate::record::{Head, Measurement, Record, Verdict};

use super::summarise;

/// The verdict on the measurements of one sitting; none of nothing. `declared` is the spread that the environment
/// allows a control, `heads` the ends of the chains that the sitting wrote to, by file.
#[must_use]
pub fn verdict(
    measurements: &[Measurement],
    declared: f64,
    heads: BTreeMap<String, Head>,
    ts: Timestamp,
) -> Option<Verdict> {
    let first = measurements.first()?;
    let records: Vec<Record> = measurements.iter().map(|it| Record::Measurement(Box::new(it.clone()))).collect();
    let groups = summarise(&records);
    let group = groups.first()?;
    let spread = group.aa_spread.get(&Metric::CpuUsPerRow).copied();
    let exceeded = spread.filter(|spread| *spread > declared);
    Some(Verdict {
        sitting: first.sitting,
        env: first.env.id.clone(),
        aa_spread: group.aa_spread.clone(),
        smallest_visible: group.smallest_visible.clone(),
        flags: exceeded.map(|spread| Flag::AaSpreadExceeded { spread, declared }).into_iter().collect(),
        heads,
        ts,
    })
}
