//! The answer to a request, written from the thread that runs its statement.
//!
//! Output is held back until it exceeds the request's buffer or the statement ends; an exception before that sets the
//! status, one after it is written into the stream as ClickHouse does and the connection is cut.

use std::io::{self, Read, Seek, Write};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::encoding::{Encoder, Encoding};
use super::engine::{Format, Progress};
use super::exception::Exception;
use super::framing;

/// Pieces in flight between the statement's thread and the socket.
const IN_FLIGHT: usize = 4;
/// With `wait_end_of_query`, output beyond this is kept in a temporary file.
const IN_MEMORY: usize = 16 << 20;

/// How long a cut answer stays open behind its last bytes.
const FLUSH: Duration = Duration::from_millis(300);

/// Holds an error back, so that the bytes before it have been sent when it cuts the connection.
async fn after_flush(piece: io::Result<Bytes>) -> io::Result<Bytes> {
    if piece.is_err() {
        tokio::time::sleep(FLUSH).await;
    }
    piece
}

/// What every response of a server says.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) timezone: String,
    pub(super) display_name: String,
}

/// How a response's body is encoded.
pub(super) enum Coding {
    Plain,
    Framed,
    /// The encoder exists from the first byte of output on until the last.
    Http(Encoding, Option<Box<Encoder>>),
}

/// The client has gone away.
#[derive(Debug)]
pub(super) struct Gone;

/// Where the body stands.
enum State {
    Held(Box<tempfile::SpooledTempFile>, usize),
    Open(mpsc::Sender<io::Result<Bytes>>),
    Closed,
}

/// A response being written.
pub(super) struct Reply {
    head: Option<oneshot::Sender<Response<Body>>>,
    identity: Identity,
    query_id: String,
    format: Option<Format>,
    coding: Coding,
    level: u32,
    state: State,
    /// Bytes held back before the head is sent.
    hold: usize,
    started: Instant,
    progress: Progress,
    tag: String,
}

impl Reply {
    /// A reply whose head goes to `head`; `hold` bytes of output are held back.
    pub(super) fn new(head: oneshot::Sender<Response<Body>>, identity: Identity, query_id: String) -> Self {
        // Sixteen lower-case letters that no output can know.
        let tag = uuid::Uuid::now_v7().as_bytes().iter().rev().map(|byte| char::from(b'a' + byte % 26)).collect();
        Self {
            head: Some(head),
            identity,
            query_id,
            format: None,
            coding: Coding::Plain,
            level: 3,
            state: State::Held(Box::new(tempfile::spooled_tempfile(IN_MEMORY)), 0),
            hold: 0,
            started: Instant::now(),
            progress: Progress::default(),
            tag,
        }
    }

    /// Sets how the body is encoded and how much is held back; `usize::MAX` holds everything.
    pub(super) fn configure(&mut self, coding: Coding, level: u32, hold: usize) {
        (self.coding, self.level, self.hold) = (coding, level, hold);
    }

    /// The format of the rows to come.
    pub(super) fn set_format(&mut self, format: Option<Format>) {
        self.format = format;
    }

    /// Adds to the counters of the summary.
    pub(super) fn add_progress(&mut self, progress: Progress) {
        self.progress += progress;
    }

    /// Whether the client still waits for an answer.
    pub(super) fn wanted(&self) -> bool {
        self.head.as_ref().is_none_or(|head| !head.is_closed())
    }

    /// Writes output.
    pub(super) fn write(&mut self, data: Bytes) -> Result<(), Gone> {
        if !self.wanted() {
            return Err(Gone);
        }
        let encoded = match &mut self.coding {
            Coding::Plain => data,
            Coding::Framed => {
                let mut out = Vec::new();
                framing::frame(&data, &mut out);
                out.into()
            }
            Coding::Http(encoding, encoder) => {
                let encoder = match encoder {
                    Some(encoder) => encoder,
                    None => encoder.insert(Box::new(Encoder::new(*encoding, self.level).map_err(|_| Gone)?)),
                };
                encoder.push(&data).map_err(|_| Gone)?.into()
            }
        };
        self.send(encoded)
    }

    fn send(&mut self, data: Bytes) -> Result<(), Gone> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.state {
            State::Held(held, length) if self.hold == usize::MAX || *length + data.len() <= self.hold => {
                *length += data.len();
                held.write_all(&data).map_err(|_| Gone)
            }
            State::Held(..) => {
                let held = self.open()?;
                for part in held.into_iter().chain([data]) {
                    self.send(part)?;
                }
                Ok(())
            }
            State::Open(sender) => sender.blocking_send(Ok(data)).map_err(|_| Gone),
            State::Closed => Err(Gone),
        }
    }

    /// Sends the head with an open body and gives back what was held.
    fn open(&mut self) -> Result<Option<Bytes>, Gone> {
        let held = self.take_held().map_err(|_| Gone)?;
        let (sender, receiver) = mpsc::channel(IN_FLIGHT);
        self.state = State::Open(sender);
        let response =
            self.response(StatusCode::OK, Body::from_stream(ReceiverStream::new(receiver).then(after_flush)));
        self.head.take().ok_or(Gone)?.send(response).map_err(|_| Gone)?;
        Ok(Some(held).filter(|held| !held.is_empty()))
    }

    fn take_held(&mut self) -> io::Result<Bytes> {
        let State::Held(held, length) = &mut self.state else { return Ok(Bytes::new()) };
        let mut bytes = Vec::with_capacity(*length);
        held.rewind()?;
        held.read_to_end(&mut bytes)?;
        self.state = State::Closed;
        Ok(bytes.into())
    }

    /// Ends the encoding; output that was never begun is sent as it is: empty.
    fn end_encoding(&mut self) -> Result<(), Gone> {
        let Coding::Http(_, encoder) = &mut self.coding else { return Ok(()) };
        match encoder.take() {
            Some(encoder) => {
                let rest = encoder.finish().map_err(|_| Gone)?;
                self.send(rest.into())
            }
            None => {
                self.coding = Coding::Plain;
                Ok(())
            }
        }
    }

    /// The statement has ended well.
    pub(super) fn finish(mut self) {
        if self.end_encoding().is_err() || self.head.is_none() {
            return;
        }
        if let Ok(body) = self.take_held() {
            self.send_head(StatusCode::OK, Body::from(body), None);
        }
    }

    fn send_head(&mut self, status: StatusCode, body: Body, code: Option<u32>) {
        let mut response = self.response(status, body);
        if let Some(code) = code {
            response.headers_mut().insert("x-clickhouse-exception-code", HeaderValue::from(code));
        }
        if let Some(head) = self.head.take() {
            let _ = head.send(response);
        }
    }

    /// The statement has failed.
    pub(super) fn fail(mut self, exception: &Exception) {
        if self.head.is_some() {
            (self.coding, self.format) = (Coding::Plain, None);
            let body = Body::from(format!("{}\n", exception.text));
            return self.send_head(exception.status(), body, Some(exception.code));
        }
        let message = format!("{}\n", exception.text);
        let length = message.len();
        let tag = &self.tag;
        let block = format!("\r\n__exception__\r\n{tag}\r\n{message}{length} {tag}\r\n__exception__\r\n");
        if self.write(block.into()).is_err() || self.end_encoding().is_err() {
            return;
        }
        if let State::Open(sender) = &self.state {
            let _ = sender.blocking_send(Err(io::Error::other("the query failed after its output had begun")));
        }
    }

    fn response(&self, status: StatusCode, body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        let content = self.format.as_ref().map_or("text/plain; charset=UTF-8", |format| &format.content_type);
        set("content-type", content);
        set("x-clickhouse-server-display-name", &self.identity.display_name);
        set("x-clickhouse-query-id", &self.query_id);
        set("x-clickhouse-timezone", &self.identity.timezone);
        set("x-clickhouse-exception-tag", &self.tag);
        set("x-clickhouse-summary", &self.summary());
        if let Some(format) = &self.format {
            set("x-clickhouse-format", &format.name);
        }
        if let Coding::Http(encoding, _) = &self.coding {
            set("content-encoding", encoding.name());
        }
        response
    }

    /// Counters as ClickHouse writes them: every number a string.
    fn summary(&self) -> String {
        let Progress { read_rows, read_bytes, written_rows, written_bytes, result_rows, result_bytes } = self.progress;
        let elapsed = self.started.elapsed().as_nanos();
        format!(
            "{{\"read_rows\":\"{read_rows}\",\"read_bytes\":\"{read_bytes}\",\"written_rows\":\"{written_rows}\",\
             \"written_bytes\":\"{written_bytes}\",\"total_rows_to_read\":\"0\",\"result_rows\":\"{result_rows}\",\
             \"result_bytes\":\"{result_bytes}\",\"elapsed_ns\":\"{elapsed}\"}}"
        )
    }
}
