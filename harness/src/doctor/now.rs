//! What the host is doing at this moment.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::setup::host::text;

/// How long CPU time is watched.
const WATCH: Duration = Duration::from_secs(1);

/// How busy the host is, this program aside: it sleeps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Now {
    /// Load average over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Share of all CPU time that processes used.
    pub busy_share: f64,
    /// Share of all CPU time that the hypervisor took away.
    pub steal_share: f64,
}

/// CPU time since the boot, in ticks of all CPUs together.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    total: u64,
    idle: u64,
    steal: u64,
}

/// Watches the host for a second.
#[must_use]
pub fn watch() -> Option<Now> {
    let root = Path::new("/");
    let before = ticks(&text(root, "proc/stat")?)?;
    thread::sleep(WATCH);
    let after = ticks(&text(root, "proc/stat")?)?;
    now(before, after, &text(root, "proc/loadavg")?)
}

fn now(before: Ticks, after: Ticks, loadavg: &str) -> Option<Now> {
    let mut load = loadavg.split(' ').map_while(|word| word.parse().ok());
    let total = after.total.saturating_sub(before.total).max(1);
    let idle = after.idle.saturating_sub(before.idle);
    let steal = after.steal.saturating_sub(before.steal);
    Some(Now {
        load: [load.next()?, load.next()?, load.next()?],
        busy_share: total.saturating_sub(idle + steal) as f64 / total as f64,
        steal_share: steal as f64 / total as f64,
    })
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
fn ticks(stat: &str) -> Option<Ticks> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let fields: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
    let [_, _, _, idle, iowait, _, _, steal] = fields[..] else { return None };
    Some(Ticks { total: fields.iter().sum(), idle: idle + iowait, steal })
}

/// The version of the Docker engine behind a socket, or why there is none.
///
/// # Errors
/// What the socket or the engine answered instead, for people.
pub fn docker(socket: &Path) -> Result<String, String> {
    let asked = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = asked().map_err(|error| format!("{}: {error}", socket.display()))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let value: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    value["Version"].as_str().map(str::to_owned).ok_or_else(|| format!("{} is no Docker engine", socket.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn shares_come_from_the_difference_of_two_readings() {
        let before = ticks("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(before, Ticks { total: 1000, idle: 850, steal: 0 });
        let after = ticks("cpu  130 0 60 850 60 0 0 100 9 0\n").unwrap();
        let now = now(before, after, "1.50 0.25 0.10 1/200 4242").unwrap();
        assert_eq!(now, Now { load: [1.5, 0.25, 0.1], busy_share: 0.2, steal_share: 0.5 });
        assert_eq!(ticks("cpu  1 2 3"), None);
    }

    #[test]
    fn an_engine_says_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("docker.sock");
        let missing = docker(&socket).unwrap_err();
        assert!(missing.contains("No such file"), "{missing}");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            for body in ["{\"Version\":\"28.3.1\",\"Os\":\"linux\"}", "hello"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 64];
                let read = stream.read(&mut request).unwrap();
                assert!(request[..read].starts_with(b"GET /version"));
                write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}").unwrap();
            }
        });
        assert_eq!(docker(&socket).as_deref(), Ok("28.3.1"));
        assert_eq!(docker(&socket), Err(format!("{} is no Docker engine", socket.display())));
        server.join().unwrap();
    }
}
