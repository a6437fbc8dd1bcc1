//! Where a batch is cut so that rows that may be late are judged by the watermark before them.

use arrow::array::types::TimestampMicrosecondType;
use arrow::array::{Array, PrimitiveArray};

use super::watermark::before;
use super::worker::Watch;

/// A stretch of rows, or a row that is looked at on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Rows that no watermark before them makes late.
    OnTime {
        /// First row.
        from: usize,
        /// Behind the last row.
        to: usize,
    },
    /// A row behind the watermark before it.
    MayBeLate {
        /// The row.
        row: usize,
        /// The watermark before it.
        closed: i64,
    },
    /// A row whose event time is not believed.
    Ahead {
        /// The row.
        row: usize,
    },
}

/// Cuts the rows of a batch and moves the watermark past them. A row that is not behind the watermark before it is late for
/// no window, since a window ends after each of its rows.
pub(super) fn cuts(times: &PrimitiveArray<TimestampMicrosecondType>, watch: &mut Watch, latest: i64) -> Vec<Cut> {
    let mut list = Vec::new();
    let mut from = 0;
    let nulls = times.nulls();
    let mut closed = watch.closed;
    for (row, &time) in times.values().iter().enumerate() {
        if nulls.is_some_and(|n| n.is_null(row)) {
            continue;
        }
        if time < closed || time > latest {
            if from < row {
                list.push(Cut::OnTime { from, to: row });
            }
            list.push(if time > latest { Cut::Ahead { row } } else { Cut::MayBeLate { row, closed } });
            from = row + 1;
        } else if let Some(moving) = &mut watch.moving
            && time > moving.latest
        {
            moving.latest = time;
            closed = closed.max(before(time.min(moving.others), moving.delay));
        }
    }
    if from < times.len() {
        list.push(Cut::OnTime { from, to: times.len() });
    }
    watch.closed = closed;
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::operator::{BEGINNING, END};
    use crate::flow::worker::Moving;
    use proptest::prelude::*;

    fn watch(closed: i64, delay: i64) -> Watch {
        Watch { closed, moving: Some(Moving { latest: BEGINNING, others: END, delay }) }
    }

    #[test]
    fn rows_behind_the_watermark_are_cut_out() {
        let times = PrimitiveArray::from(vec![Some(10), None, Some(12), Some(9), Some(11), Some(99)]);
        let found = cuts(&times, &mut watch(BEGINNING, 1), 50);
        assert_eq!(
            found,
            [
                Cut::OnTime { from: 0, to: 3 },
                Cut::MayBeLate { row: 3, closed: 11 },
                Cut::OnTime { from: 4, to: 5 },
                Cut::Ahead { row: 5 },
            ]
        );
        let mut fixed = Watch { closed: 11, moving: None };
        assert_eq!(cuts(&PrimitiveArray::from(vec![12, 10]), &mut fixed, END).len(), 2);
    }

    proptest! {
        #[test]
        fn every_row_is_judged_by_the_watermark_before_it(
            times in proptest::collection::vec(proptest::option::weighted(0.9, 0_i64..100), 0..60),
            delay in 0_i64..20, start in 0_i64..60, split in 0_usize..60,
        ) {
            let array = PrimitiveArray::from(times.clone());
            let split = split.min(times.len());
            let mut watch = watch(start, delay);
            let mut all = cuts(&array.slice(0, split), &mut watch, END);
            let second = cuts(&array.slice(split, times.len() - split), &mut watch, END);
            all.extend(second.into_iter().map(|cut| match cut {
                Cut::OnTime { from, to } => Cut::OnTime { from: from + split, to: to + split },
                Cut::MayBeLate { row, closed } => Cut::MayBeLate { row: row + split, closed },
                Cut::Ahead { row } => Cut::Ahead { row: row + split },
            }));
            let mut judged = vec![];
            for cut in all {
                match cut {
                    Cut::OnTime { from, to } => judged.extend((from..to).map(|row| (row, None))),
                    Cut::MayBeLate { row, closed } => judged.push((row, Some(closed))),
                    Cut::Ahead { .. } => prop_assert!(false),
                }
            }
            let mut watermark = start;
            let mut expected = vec![];
            for (row, time) in times.iter().enumerate() {
                expected.push((row, time.filter(|t| *t < watermark).map(|_| watermark)));
                if let Some(time) = time {
                    watermark = watermark.max(time - delay);
                }
            }
            prop_assert_eq!(judged, expected);
        }
    }
}
