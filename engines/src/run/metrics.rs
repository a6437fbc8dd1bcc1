//! The figures of a run over HTTP: `/metrics` as Prometheus reads them, `/healthz` while the run lives.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::flow::Progress;

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request.
const LONGEST: usize = 8 << 10;

/// The figures, and who serves them.
#[derive(Debug)]
pub(super) struct Metrics {
    shared: Arc<Shared>,
    server: Option<(JoinHandle<()>, SocketAddr)>,
}

#[derive(Debug)]
struct Shared {
    progress: Mutex<Progress>,
    started: Instant,
    stop: AtomicBool,
}

impl Metrics {
    /// Serves the figures at an address, `HOST:PORT` or `:PORT`; without one they are only taken in.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(super) fn serve(address: Option<&str>) -> Result<Self, Error> {
        let progress = Progress { watermark: i64::MIN, ..Progress::default() };
        let shared =
            Arc::new(Shared { progress: Mutex::new(progress), started: Instant::now(), stop: AtomicBool::new(false) });
        let Some(address) = address else { return Ok(Self { shared, server: None }) };
        let full = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
        let listen = || -> io::Result<(JoinHandle<()>, SocketAddr)> {
            let listener = TcpListener::bind(&full)?;
            let local = listener.local_addr()?;
            let own = Arc::clone(&shared);
            let thread = thread::Builder::new().name("metrics".into()).spawn(move || serve(&listener, &own))?;
            Ok((thread, local))
        };
        let server = listen().map_err(|e| {
            Error::usage(format!("--metrics {address} cannot be listened on: {e}"), "write HOST:PORT of a free port")
        })?;
        eprintln!("metrics at http://{}/metrics", server.1);
        Ok(Self { shared, server: Some(server) })
    }

    /// Takes in how far the run is.
    pub(super) fn set(&self, progress: &Progress) {
        *self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner) = *progress;
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let Some((thread, mut address)) = self.server.take() else { return };
        self.shared.stop.store(true, Ordering::Relaxed);
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        // A connection wakes the thread; without one it ends with the process.
        if TcpStream::connect_timeout(&address, PATIENCE).is_ok() {
            drop(thread.join());
        }
    }
}

fn serve(listener: &TcpListener, shared: &Shared) {
    for client in listener.incoming() {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // A client that breaks off is no concern of the run.
        drop(client.and_then(|client| answer(client, shared)));
    }
}

fn answer(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let (mut request, mut chunk) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < LONGEST && Instant::now() < until {
        match client.read(&mut chunk)? {
            0 => break,
            count => request.extend_from_slice(&chunk[..count]),
        }
    }
    let line = request.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|b| *b == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|b| *b == b'?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => {
            let progress = *shared.progress.lock().unwrap_or_else(PoisonError::into_inner);
            let text = exposition(&progress, shared.started.elapsed());
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text)
        }
        (b"GET" | b"HEAD", b"/healthz") => ("200 OK", "text/plain", "ok\n".to_owned()),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "text/plain", "/metrics and /healthz are here\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    if method != b"HEAD" {
        client.write_all(body.as_bytes())?;
    }
    client.flush()
}

/// The figures in Prometheus' text format.
fn exposition(progress: &Progress, up: Duration) -> String {
    let totals = &progress.totals;
    let counts = [
        ("freshet_records_total", "Records read.", totals.records),
        ("freshet_rows_total", "Rows written.", totals.rows),
        (
            "freshet_bad_records_total",
            "Records and rows left out because they could not be read or computed.",
            totals.skipped,
        ),
        ("freshet_late_rows_total", "Rows late for all their windows: left out.", progress.late),
        ("freshet_partly_late_rows_total", "Rows late for some of their windows.", progress.partly_late),
        ("freshet_timeless_rows_total", "Rows without an event time: left out.", progress.timeless),
        ("freshet_ahead_rows_total", "Rows too far ahead of the clock: left out.", progress.ahead),
        ("freshet_spills_total", "Times state was spilled to disk.", progress.spills),
        ("freshet_checkpoints_total", "Checkpoints on disk.", progress.checkpoints),
    ];
    let mut text = String::new();
    let mut figure = |name: &str, help: &str, kind: &str, value: String| {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}").expect("a string takes all text");
    };
    for (name, help, value) in counts {
        figure(name, help, "counter", value.to_string());
    }
    figure("freshet_state_bytes", "Bytes of state in memory.", "gauge", progress.state.to_string());
    let pause = Duration::from_micros(progress.checkpoint_pause).as_secs_f64();
    figure(
        "freshet_checkpoint_pause_seconds",
        "How long the last checkpoint held the run.",
        "gauge",
        pause.to_string(),
    );
    if progress.watermark != i64::MIN && progress.watermark != i64::MAX {
        let seconds = progress.watermark as f64 / 1e6;
        figure(
            "freshet_watermark_seconds",
            "Event time up to which everything is final.",
            "gauge",
            seconds.to_string(),
        );
    }
    figure("freshet_uptime_seconds", "Time since the run began.", "gauge", up.as_secs_f64().to_string());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Totals;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn figures_and_health_are_served_until_the_end() {
        let metrics = Metrics::serve(Some("127.0.0.1:0")).unwrap();
        let address = metrics.server.as_ref().unwrap().1;
        let get = |path: &str| ask(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        assert!(!get("/metrics").contains("watermark"));
        let totals = Totals { records: 7, rows: 5, skipped: 2 };
        metrics.set(&Progress { totals, watermark: 1_500_000, checkpoint_pause: 250, ..Progress::default() });
        let text = get("/metrics?x=1");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4"), "{text}");
        for line in [
            "# TYPE freshet_records_total counter",
            "freshet_records_total 7",
            "freshet_rows_total 5",
            "freshet_bad_records_total 2",
            "freshet_watermark_seconds 1.5",
            "freshet_checkpoint_pause_seconds 0.00025",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        assert!(get("/healthz").ends_with("\r\n\r\nok\n"));
        assert!(get("/").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(address, "HEAD /healthz HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
        let taken = Metrics::serve(Some(&address.to_string())).unwrap_err();
        assert_eq!(taken.code(), "USAGE");
        drop(metrics);
        assert!(TcpStream::connect(address).is_err());
    }
}
