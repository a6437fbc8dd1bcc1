//! The answers, computed in the plainest way from all events at once.

use std::collections::BTreeMap;

/// Microseconds since 1970 of the first event.
const START: i64 = 1_767_225_600_000_000;

/// One message of a source topic.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) id: i64,
    pub(crate) key: u64,
    pub(crate) value: i64,
    /// Microseconds after the start.
    pub(crate) time: i64,
    pub(crate) partition: i32,
    /// Whether it goes to the second stream.
    pub(crate) other: bool,
}

/// A pipeline's query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Tumble,
    Hop,
    Session,
    Join,
}

const SECOND: i64 = 1_000_000;

fn text(micros: i64) -> String {
    let mut out = Vec::new();
    freshet::format::timestamp::write(&mut out, START + micros);
    String::from_utf8(out).expect("text")
}

impl Event {
    pub(crate) fn json(&self) -> String {
        format!("{{\"id\":{},\"k\":\"k{}\",\"v\":{},\"ts\":\"{}\"}}", self.id, self.key, self.value, text(self.time))
    }
}

impl Shape {
    pub(crate) fn query(self) -> &'static str {
        match self {
            Self::Tumble => {
                "SELECT k, TUMBLE(ts, INTERVAL '1 second') AS w, count(*) AS n, sum(v) AS s FROM {events} \
                 GROUP BY k, TUMBLE(ts, INTERVAL '1 second')"
            }
            Self::Hop => {
                "SELECT k, HOP(ts, INTERVAL '1 second', INTERVAL '3 seconds') AS w, count(*) AS n, sum(v) AS s \
                 FROM {events} GROUP BY k, HOP(ts, INTERVAL '1 second', INTERVAL '3 seconds')"
            }
            Self::Session => {
                "SELECT k, SESSION(ts, INTERVAL '1 second') AS w, count(*) AS n, sum(v) AS s FROM {events} \
                 GROUP BY k, SESSION(ts, INTERVAL '1 second')"
            }
            Self::Join => {
                "SELECT a.id AS l, b.id AS r, a.k FROM {events} a JOIN other b \
                 ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1 second' AND a.ts + INTERVAL '500 milliseconds'"
            }
        }
    }

    /// Key and value of every message that must be there. What the events far ahead open stays open.
    pub(crate) fn expected(self, events: &[Event]) -> Vec<(String, String)> {
        let real = |other: bool| events.iter().filter(move |e| e.id >= 0 && e.other == other);
        match self {
            Self::Tumble => windows(real(false), |time| vec![time.div_euclid(SECOND) * SECOND]),
            Self::Hop => windows(real(false), |time| {
                let last = time.div_euclid(SECOND) * SECOND;
                vec![last, last - SECOND, last - 2 * SECOND]
            }),
            Self::Session => sessions(real(false)),
            Self::Join => {
                let right: Vec<&Event> = real(true).collect();
                let near = |l: &Event, r: &Event| l.key == r.key && (-SECOND..=SECOND / 2).contains(&(r.time - l.time));
                let mut rows = Vec::new();
                for l in real(false) {
                    for r in right.iter().filter(|r| near(l, r)) {
                        let row = format!("{{\"l\":{},\"r\":{},\"k\":\"k{}\"}}", l.id, r.id, l.key);
                        rows.push((format!("[{},{}]", l.id, r.id), row));
                    }
                }
                rows
            }
        }
    }
}

fn row(key: u64, window: i64, (count, sum): (i64, i64)) -> (String, String) {
    let window = text(window);
    (format!("[\"k{key}\",\"{window}\"]"), format!("{{\"k\":\"k{key}\",\"w\":\"{window}\",\"n\":{count},\"s\":{sum}}}"))
}

fn windows<'e>(events: impl Iterator<Item = &'e Event>, of: impl Fn(i64) -> Vec<i64>) -> Vec<(String, String)> {
    let mut groups: BTreeMap<(i64, u64), (i64, i64)> = BTreeMap::new();
    for event in events {
        for window in of(event.time) {
            let group = groups.entry((window, event.key)).or_default();
            *group = (group.0 + 1, group.1 + event.value);
        }
    }
    groups.into_iter().map(|((window, key), group)| row(key, window, group)).collect()
}

fn sessions<'e>(events: impl Iterator<Item = &'e Event>) -> Vec<(String, String)> {
    let mut of_key: BTreeMap<u64, Vec<(i64, i64)>> = BTreeMap::new();
    events.for_each(|event| of_key.entry(event.key).or_default().push((event.time, event.value)));
    let mut rows = Vec::new();
    for (key, mut list) in of_key {
        list.sort_unstable();
        let mut open: Option<(i64, i64, (i64, i64))> = None;
        for (time, value) in list {
            open = match open {
                Some((start, last, (n, s))) if time - last <= SECOND => Some((start, time, (n + 1, s + value))),
                Some((start, _, group)) => {
                    rows.push(row(key, start, group));
                    Some((time, time, (1, value)))
                }
                None => Some((time, time, (1, value))),
            };
        }
        rows.extend(open.map(|(start, _, group)| row(key, start, group)));
    }
    rows
}
