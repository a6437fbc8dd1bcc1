//! A request body read from a blocking thread, with the socket's back-pressure: nothing is read ahead of the reader.

use std::io::{self, Read};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use tokio::runtime::Handle;
use tokio_stream::StreamExt;

use super::encoding::Encoding;
use super::framing::Unframer;

/// How long a client may pause inside its body.
const PAUSE: Duration = Duration::from_secs(300);
/// Bytes handed to the engine at a time when the body must be decoded.
const DECODED: usize = 256 * 1024;
/// Smaller pieces of a plain body are joined up to this size before they are handed on.
const JOIN: usize = 128 * 1024;
/// Of a body that is no longer wanted, at most this much is read so that the client can read its answer.
const DRAIN: usize = 8 << 20;

/// The body as it comes from the socket.
pub(super) struct RawBody {
    stream: BodyDataStream,
    runtime: Handle,
    part: Bytes,
}

impl RawBody {
    pub(super) fn new(body: Body, runtime: Handle) -> Self {
        Self { stream: body.into_data_stream(), runtime, part: Bytes::new() }
    }

    /// The next piece; `None` at the end. A body cut short is an error.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        if !self.part.is_empty() {
            return Ok(Some(std::mem::take(&mut self.part)));
        }
        let stream = &mut self.stream;
        let piece = self.runtime.block_on(async { tokio::time::timeout(PAUSE, stream.next()).await });
        match piece {
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client sent nothing for 300 seconds")),
            Ok(None) => Ok(None),
            Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            Ok(Some(Err(error))) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, error)),
        }
    }
}

impl Read for RawBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.next()? {
                Some(part) => self.part = part,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.part.len());
        buffer[..length].copy_from_slice(&self.part.split_to(length));
        Ok(length)
    }
}

/// How the body is decoded.
enum Source {
    Plain(RawBody),
    Decoded(Box<dyn Read>),
}

/// The decoded body.
pub(super) struct RequestBody {
    source: Source,
    ahead: Vec<u8>,
    polled: bool,
}

impl RequestBody {
    pub(super) fn new(raw: RawBody, encoding: Option<Encoding>, framed: bool) -> io::Result<Self> {
        let source = match (encoding, framed) {
            (None, false) => Source::Plain(raw),
            (None, true) => Source::Decoded(Box::new(Unframer::new(raw))),
            (Some(encoding), false) => Source::Decoded(encoding.reader(Box::new(raw))?),
            (Some(encoding), true) => Source::Decoded(Box::new(Unframer::new(encoding.reader(Box::new(raw))?))),
        };
        Ok(Self { source, ahead: Vec::new(), polled: false })
    }

    /// The next piece, of any size; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Bytes>> {
        if !self.ahead.is_empty() {
            return Ok(Some(Bytes::from(std::mem::take(&mut self.ahead))));
        }
        self.polled = true;
        match &mut self.source {
            Source::Plain(raw) => {
                let Some(first) = raw.next()? else { return Ok(None) };
                if first.len() >= JOIN {
                    return Ok(Some(first));
                }
                let mut joined = Vec::with_capacity(JOIN);
                joined.extend_from_slice(&first);
                while joined.len() < JOIN {
                    match raw.next()? {
                        Some(mut more) => {
                            let room = JOIN.saturating_sub(joined.len()).min(more.len());
                            joined.extend_from_slice(&more.split_to(room));
                            raw.part = more;
                        }
                        None => break,
                    }
                }
                Ok(Some(Bytes::from(joined)))
            }
            Source::Decoded(reader) => {
                let mut buffer = Vec::with_capacity(DECODED);
                reader.take(DECODED as u64).read_to_end(&mut buffer)?;
                Ok((!buffer.is_empty()).then(|| Bytes::from(buffer)))
            }
        }
    }

    /// Puts bytes back in front.
    pub(super) fn unread(&mut self, bytes: &[u8]) {
        self.ahead.splice(0..0, bytes.iter().copied());
    }

    /// Reads what is left of a small body, so that a client still sending it gets to read the answer.
    pub(super) fn drain(&mut self) {
        let mut left = DRAIN;
        while self.polled && left > 0 {
            match self.next() {
                Ok(Some(part)) => left = left.saturating_sub(part.len()),
                _ => return,
            }
        }
    }
}
