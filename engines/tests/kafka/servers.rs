//! A schema registry with one schema, and a ClickHouse with one table of rows (id UInt64, item UInt8).

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// One row of the table.
pub(crate) type Row = (u64, u8);

/// Starts a registry and returns its address.
pub(crate) fn registry(schema: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut reader = BufReader::new(&stream);
            while request(&mut reader).is_some() {
                let quoted = serde_json::Value::from(schema).to_string();
                answer(
                    &stream,
                    200,
                    "",
                    &format!("{{\"subject\":\"t-value\",\"version\":1,\"id\":1,\"schema\":{quoted}}}"),
                );
            }
        }
    });
    url
}

/// A table that keeps what is inserted into it.
pub(crate) struct ClickHouse {
    /// `host:port`.
    pub(crate) address: String,
    /// Inserts that arrived.
    pub(crate) inserts: Arc<AtomicUsize>,
    /// Inserts that were accepted.
    pub(crate) accepted: Arc<AtomicUsize>,
    rows: Arc<(Mutex<Vec<Row>>, Condvar)>,
    refuse_in: Arc<AtomicUsize>,
}

impl ClickHouse {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let refuse_in = Arc::new(AtomicUsize::new(usize::MAX));
        let (inserts, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let table = Self { address, inserts, accepted, rows: Arc::default(), refuse_in };
        let own = (table.rows.clone(), table.refuse_in.clone(), table.inserts.clone(), table.accepted.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (rows, refuse_in, inserts, accepted) = own.clone();
                thread::spawn(move || {
                    let stream = stream.unwrap();
                    let mut reader = BufReader::new(&stream);
                    while let Some((path, body)) = request(&mut reader) {
                        if !path.contains("INSERT") {
                            let text = String::from_utf8(body).unwrap();
                            let describe = "[\"id\",\"UInt64\",\"\"]\n[\"item\",\"UInt8\",\"\"]\n";
                            answer(
                                &stream,
                                200,
                                "",
                                if text.starts_with("DESCRIBE") { describe } else { "id, item\n" },
                            );
                            continue;
                        }
                        inserts.fetch_add(1, Ordering::SeqCst);
                        let left =
                            refuse_in.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                        if left == Err(0) || left == Ok(1) {
                            refuse_in.store(usize::MAX, Ordering::SeqCst);
                            answer(&stream, 500, "X-ClickHouse-Exception-Code: 16\r\n", "Code: 16. no");
                            continue;
                        }
                        accepted.fetch_add(1, Ordering::SeqCst);
                        let parsed =
                            body.chunks_exact(9).map(|row| (u64::from_le_bytes(row[..8].try_into().unwrap()), row[8]));
                        rows.0.lock().unwrap().extend(parsed);
                        rows.1.notify_all();
                        answer(&stream, 200, "", "");
                    }
                });
            }
        });
        table
    }

    /// The `count`-th insert from now is refused for good.
    pub(crate) fn refuse_in(&self, count: usize) {
        self.refuse_in.store(count, Ordering::SeqCst);
    }

    /// The rows so far.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.rows.0.lock().unwrap().clone()
    }

    /// Drops the rows so far.
    pub(crate) fn forget(&self) {
        self.rows.0.lock().unwrap().clear();
    }

    /// Waits for more rows, for a while.
    pub(crate) fn wait(&self) {
        let rows = self.rows.0.lock().unwrap();
        drop(self.rows.1.wait_timeout(rows, std::time::Duration::from_millis(200)).unwrap());
    }
}

fn request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if path.is_empty() {
            path = line.split(' ').nth(1)?.to_owned();
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}

fn answer(mut stream: &TcpStream, status: u16, headers: &str, body: &str) {
    // A client that has gone away is not this server's concern.
    drop(write!(stream, "HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()));
}
