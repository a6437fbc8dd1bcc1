//! Where windows begin and end, in microseconds since 1970.

use crate::plan::Window;

/// 2000-01-03, a Monday: windows begin at multiples of their slide from there.
const ORIGIN: i64 = 946_857_600_000_000;

/// Start of the window, or of the pane, of `width` that holds `time`. Starts before the least number are cut to it.
pub(crate) fn floor(time: i64, width: i64, offset: i64) -> i64 {
    if let Some(origin) = ORIGIN.checked_add(offset)
        && let Some(distance) = time.checked_sub(origin)
        && let Some(start) = time.checked_sub(distance.rem_euclid(width))
    {
        return start;
    }
    let origin = i128::from(ORIGIN) + i128::from(offset);
    let distance = i128::from(time) - origin;
    narrow(origin + distance.div_euclid(i128::from(width)) * i128::from(width))
}

fn narrow(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Windows of one length at a regular distance, made of panes: the stretches that lie in the same windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) pane: i64,
    pub(crate) slide: i64,
    pub(crate) size: i64,
    pub(crate) offset: i64,
}

impl Grid {
    /// The grid of a tumbling or hopping window; one of endless length for no window.
    pub(crate) fn new(window: Window) -> Option<Self> {
        match window {
            Window::None => Some(Self { pane: i64::MAX, slide: i64::MAX, size: i64::MAX, offset: 0 }),
            Window::Tumble { size, offset } => Some(Self { pane: size, slide: size, size, offset }),
            // A slide longer than the window leaves gaps, which are panes of their own.
            Window::Hop { slide, size, offset } => Some(Self { pane: gcd(slide, size), slide, size, offset }),
            Window::Session { .. } => None,
        }
    }

    /// Start of the pane that holds a time.
    pub(crate) fn pane_of(&self, time: i64) -> i64 {
        floor(time, self.pane, self.offset)
    }

    /// Start of the last window that begins at or before a pane.
    pub(crate) fn last_window(&self, pane: i64) -> i64 {
        floor(pane, self.slide, self.offset)
    }

    /// End of the window that begins there.
    pub(crate) fn end(&self, start: i64) -> i64 {
        start.saturating_add(self.size)
    }

    /// Starts of the windows that a pane lies in, ascending. None when it lies in a gap.
    pub(crate) fn windows_of(&self, pane: i64) -> impl DoubleEndedIterator<Item = i64> + use<> {
        let (last, slide, size) = (self.last_window(pane), self.slide, self.size);
        // Windows begin no earlier than `pane − size + pane length`.
        let back = (i128::from(size) - (i128::from(pane) - i128::from(last)) - 1).div_euclid(i128::from(slide));
        let count = (back + 1).clamp(0, i128::from(u32::MAX)) as i64;
        (0..count).rev().map(move |step| narrow(i128::from(last) - i128::from(step) * i128::from(slide)))
    }

    /// Start of the first window a pane lies in that ends after `closed`; `None` when all of them have ended.
    pub(crate) fn first_open(&self, pane: i64, closed: i64) -> Option<i64> {
        self.windows_of(pane).find(|start| self.end(*start) > closed)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn windows_begin_on_a_monday_and_are_floored() {
        assert_eq!(floor(-1, 60 * SECOND, 0), -60 * SECOND);
        assert_eq!(floor(0, 60 * SECOND, 0), 0);
        let week = 7 * 86_400 * SECOND;
        assert_eq!(floor(ORIGIN + week - 1, week, 0), ORIGIN);
        assert_eq!(floor(ORIGIN, 7 * SECOND, 2 * SECOND), ORIGIN - 5 * SECOND);
        assert_eq!(floor(i64::MIN, 7, 0), i64::MIN);
        assert_eq!(floor(i64::MAX, i64::MAX, 0).signum(), 1);
    }

    proptest! {
        #[test]
        fn a_row_lies_in_the_windows_of_its_pane(
            time in prop_oneof![any::<i64>(), -1000_i64..1000], slide in 1_i64..50, size in 1_i64..120, offset in -60_i64..60,
            closed in -1100_i64..1100,
        ) {
            let grid = Grid::new(Window::Hop { slide, size, offset }).unwrap();
            let pane = grid.pane_of(time);
            let windows: Vec<i64> = grid.windows_of(pane).collect();
            if (i64::MIN / 2..i64::MAX / 2).contains(&time) {
                let last = floor(time, slide, offset);
                let mut naive: Vec<i64> =
                    (0..=size / slide + 1).map(|k| last - k * slide).filter(|s| *s <= time && time < s + size).collect();
                naive.reverse();
                prop_assert_eq!(&windows, &naive);
                let open = naive.into_iter().find(|s| s + size > closed);
                prop_assert_eq!(grid.first_open(pane, closed), open);
            }
        }

        #[test]
        fn no_time_and_no_window_panics(
            time in any::<i64>(), slide in 1_i64..i64::MAX, size in 1_i64..i64::MAX, offset in any::<i64>(),
        ) {
            let grid = Grid::new(Window::Hop { slide, size, offset }).unwrap();
            prop_assert!(grid.windows_of(grid.pane_of(time)).take(100).count() <= 100);
        }
    }
}
