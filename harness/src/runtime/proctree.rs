//! Processes as `/proc` shows them: who descends from whom, when they started, what they have used.

use std::collections::HashMap;
use std::path::Path;

/// The environment variable that marks every process of a service: `<owner>/<service>`.
pub const COOKIE: &str = "WEIR_SERVICE";

/// What `/proc/<pid>/stat` says of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its parent's process id.
    pub parent: u32,
    /// State letter: `R`, `S`, `D`, `Z` (zombie), …
    pub state: char,
    /// User time in µs, with that of its reaped children.
    pub user_us: u64,
    /// System time in µs, with that of its reaped children.
    pub system_us: u64,
    /// Threads.
    pub threads: u64,
    /// Start time in clock ticks after boot; with the pid it names a process for good.
    pub started: u64,
}

/// Length of a clock tick in µs.
#[must_use]
pub fn tick_us() -> u64 {
    // SAFETY: sysconf has no preconditions and touches no memory of ours.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000 / u64::try_from(hz).unwrap_or(100).max(1)
}

/// The process `pid`, or `None` when there is none.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

/// Every process under `pid`, without `pid` itself.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for other in all() {
        if let Some(stat) = stat(other) {
            children.entry(stat.parent).or_default().push(other);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        if let Some(below) = children.remove(&parent) {
            found.extend(&below);
            next.extend(below);
        }
    }
    found
}

/// Processes whose environment carries a [`COOKIE`] that `wanted` accepts, zombies left out.
#[must_use]
pub fn marked(wanted: impl Fn(&str) -> bool) -> Vec<u32> {
    let key = format!("{COOKIE}=");
    all()
        .into_iter()
        .filter(|pid| {
            let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else {
                return false;
            };
            environ
                .split(|byte| *byte == 0)
                .filter_map(|entry| std::str::from_utf8(entry).ok()?.strip_prefix(&key))
                .any(&wanted)
        })
        .collect()
}

/// Anonymous and all resident memory of `pid` in bytes.
#[must_use]
pub fn memory(pid: u32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some((bytes("RssAnon:")?, bytes("VmRSS:")?))
}

/// Names this process for good, as `<pid>-<start>`: no later process has the same.
#[must_use]
pub fn self_name() -> String {
    let pid = std::process::id();
    let started = stat(pid).map_or(0, |stat| stat.started);
    format!("{pid}-{started}")
}

/// Whether the process that called itself `<pid>-<start>…` is alive; `None` when the text is no such name.
#[must_use]
pub fn is_alive(name: &str) -> Option<bool> {
    let mut fields = name.split('-');
    let pid: u32 = fields.next()?.parse().ok()?;
    let started: u64 = fields.next()?.parse().ok()?;
    Some(stat(pid).is_some_and(|stat| stat.started == started && stat.state != 'Z'))
}

fn all() -> Vec<u32> {
    std::fs::read_dir(Path::new("/proc"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// `pid (name) state ppid …`; the name may itself hold spaces and parentheses.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let tick = tick_us();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        user_us: (number(11)? + number(13)?) * tick,
        system_us: (number(12)? + number(14)?) * tick,
        threads: number(17)?,
        started: number(19)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "42 (a (b) c) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 5 0 999 1 1";
        let stat = parse_stat(text).expect("well-formed");
        assert_eq!((stat.parent, stat.state), (7, 'S'));
        assert_eq!(stat.user_us, 40 * tick_us());
        assert_eq!(stat.system_us, 60 * tick_us());
        assert_eq!((stat.threads, stat.started), (5, 999));
    }

    #[test]
    fn this_process_is_alive_and_another_start_time_is_not() {
        assert_eq!(is_alive(&self_name()), Some(true));
        assert_eq!(is_alive(&format!("{}-1-x", std::process::id())), Some(false));
        assert_eq!(is_alive("not-a-name"), None);
    }

    #[test]
    fn own_parent_has_this_process_among_its_descendants() {
        let parent = stat(std::process::id()).expect("we exist").parent;
        assert!(descendants(parent).contains(&std::process::id()));
    }
}
