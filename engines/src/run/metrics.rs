//! Metrics over HTTP, for Prometheus and for health checks.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::flow::Progress;

/// Longest that a client may take to ask.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the run stands, for whoever asks.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics(Option<Arc<Mutex<Progress>>>);

impl Metrics {
    /// Answers at an address, when there is one, until the process ends.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub(super) fn serve(address: Option<&str>) -> Result<Self, Error> {
        let Some(address) = address else { return Ok(Self(None)) };
        let listener = TcpListener::bind(address).map_err(|e| {
            Error::usage(format!("--metrics {address} cannot be listened at: {e}"), "write HOST:PORT of a free port")
        })?;
        if let Ok(bound) = listener.local_addr() {
            eprintln!("metrics at http://{bound}/metrics");
        }
        let progress = Arc::new(Mutex::new(Progress::default()));
        let shared = Arc::clone(&progress);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let text = page(&shared.lock().unwrap_or_else(PoisonError::into_inner));
                // A client that goes away is its own affair.
                drop(answer(&stream, &text));
            }
        });
        Ok(Self(Some(progress)))
    }

    /// Takes note of where the run stands.
    pub(super) fn set(&self, progress: &Progress) {
        if let Some(own) = &self.0 {
            *own.lock().unwrap_or_else(PoisonError::into_inner) = *progress;
        }
    }
}

fn answer(mut stream: &TcpStream, metrics: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let path = request.split_whitespace().nth(1).unwrap_or("");
    let (status, body) = match path {
        "/metrics" => ("200 OK", metrics),
        "/healthz" => ("200 OK", "ok\n"),
        _ => ("404 Not Found", "there are /metrics and /healthz\n"),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn page(progress: &Progress) -> String {
    let totals = progress.totals;
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(text, "# HELP freshet_{name} {help}\n# TYPE freshet_{name} {kind}\nfreshet_{name} {value}");
    };
    metric("records_total", "counter", "Records read.", totals.records as f64);
    metric("rows_total", "counter", "Rows written.", totals.rows as f64);
    metric(
        "skipped_total",
        "counter",
        "Records and rows left out because they could not be read.",
        totals.skipped as f64,
    );
    metric("late_rows_total", "counter", "Rows late for all their windows.", progress.late as f64);
    metric("partly_late_rows_total", "counter", "Rows late for some of their windows.", progress.partly_late as f64);
    metric(
        "timeless_rows_total",
        "counter",
        "Rows left out because they have no event time.",
        progress.timeless as f64,
    );
    metric("ahead_rows_total", "counter", "Rows left out because they are too far ahead.", progress.ahead as f64);
    metric("state_bytes", "gauge", "State in memory.", progress.state as f64);
    metric("spills_total", "counter", "Times state was spilled.", progress.spills as f64);
    metric("checkpoints_total", "counter", "Checkpoints on disk.", progress.checkpoints as f64);
    let pause = progress.checkpoint_pause as f64 / 1e6;
    metric("checkpoint_pause_seconds", "gauge", "How long the last checkpoint held the rows up.", pause);
    if progress.watermark != i64::MIN && progress.watermark != i64::MAX {
        metric("watermark_seconds", "gauge", "Event time that is complete.", progress.watermark as f64 / 1e6);
    }
    text
}
