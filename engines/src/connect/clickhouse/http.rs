//! HTTP/1.1 as far as ClickHouse needs it: one request at a time over a connection that is kept.

use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// What ClickHouse answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    /// HTTP status.
    pub(crate) status: u16,
    /// ClickHouse's error code, when it names one.
    pub(crate) exception: Option<u32>,
    /// The body, cut to [`MAX_BODY`].
    pub(crate) body: String,
}

/// Bytes of a response's body that are kept.
const MAX_BODY: usize = 1 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IO_TIMEOUT: Duration = Duration::from_secs(300);

/// A connection to one server, opened when it is first needed and again when it broke.
#[derive(Debug)]
pub(crate) struct Connection {
    host: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    /// A connection to `host:port`; it is opened with the first request.
    pub(crate) fn new(host: &str) -> Self {
        Self { host: host.to_owned(), stream: None }
    }

    /// Posts the pieces of a body. `headers` are complete lines. A connection that the server closed while it was idle is
    /// opened again.
    ///
    /// # Errors
    /// The server cannot be reached, or the connection broke before it answered.
    pub(crate) fn post(&mut self, path: &str, headers: &str, body: &[IoSlice]) -> io::Result<Response> {
        let length: usize = body.iter().map(|piece| piece.len()).sum();
        let head = format!("POST {path} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: {length}\r\n\r\n", self.host);
        let kept = self.stream.is_some();
        match self.exchange(&head, body) {
            Err(error) if kept && closed(&error) => self.exchange(&head, body),
            outcome => outcome,
        }
    }

    fn exchange(&mut self, head: &str, body: &[IoSlice]) -> io::Result<Response> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(self.open()?),
        };
        let mut pieces = Vec::with_capacity(body.len() + 1);
        pieces.push(IoSlice::new(head.as_bytes()));
        pieces.extend(body.iter().map(|piece| IoSlice::new(piece)));
        let sent = write_all(stream.get_ref(), &mut pieces);
        // A server that refuses a body early answers before it has read all of it.
        match (sent, receive(&mut stream)) {
            (Ok(()), Ok((response, keep))) => {
                self.stream = keep.then_some(stream);
                Ok(response)
            }
            (Err(_), Ok((response, _))) => Ok(response),
            (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(error),
        }
    }

    fn open(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in self.host.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(IO_TIMEOUT))?;
                    stream.set_write_timeout(Some(IO_TIMEOUT))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Whether the error is that of a connection closed by the other side.
fn closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn write_all(mut stream: &TcpStream, pieces: &mut [IoSlice]) -> io::Result<()> {
    let mut rest = pieces;
    while !rest.is_empty() {
        match stream.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads one response; also whether the connection can be used again.
fn receive(stream: &mut impl BufRead) -> io::Result<(Response, bool)> {
    let (status, mut keep) = loop {
        let line = line(stream)?;
        let mut words = line.split(' ');
        let version = words.next().unwrap_or("");
        let status = words.next().and_then(|word| word.parse::<u16>().ok());
        let (true, Some(status)) = (version.starts_with("HTTP/1."), status) else {
            return Err(invalid("the answer is not HTTP"));
        };
        if status >= 200 {
            break (status, version != "HTTP/1.0");
        }
        while !self::line(stream)?.is_empty() {}
    };
    let (mut length, mut chunked, mut exception) = (None, false, None);
    loop {
        let line = line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.parse::<u64>().map_err(|_| invalid("a length is no number"))?),
            "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" if value.eq_ignore_ascii_case("close") => keep = false,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => keep = true,
            "x-clickhouse-exception-code" => exception = value.parse().ok(),
            _ => {}
        }
    }
    let mut body = Vec::new();
    match (chunked, length) {
        (true, _) => chunks(stream, &mut body)?,
        (false, Some(length)) => keep_some(stream, length, &mut body)?,
        (false, None) => {
            keep = false;
            stream.take(MAX_BODY as u64).read_to_end(&mut body)?;
        }
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok((Response { status, exception, body }, keep))
}

fn chunks(stream: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = line(stream)?;
        let size = line.split(';').next().unwrap_or("").trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| invalid("a chunk has no size"))?;
        if size == 0 {
            while !self::line(stream)?.is_empty() {}
            return Ok(());
        }
        keep_some(stream, size, body)?;
        self::line(stream)?;
    }
}

/// Reads `length` bytes and keeps those that fit in [`MAX_BODY`].
fn keep_some(stream: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> io::Result<()> {
    let room = (MAX_BODY - body.len().min(MAX_BODY)) as u64;
    let kept = length.min(room);
    let mut read = stream.take(kept).read_to_end(body)? as u64;
    if read == kept {
        read += io::copy(&mut stream.take(length - kept), &mut io::sink())?;
    }
    if read == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// One line without its end.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    const LONGEST: u64 = 64 << 10;
    let mut line = Vec::new();
    stream.take(LONGEST).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Base64, for `Authorization: Basic`.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let index = (word >> (18 - 6 * digit)) as usize & 63;
            out.push(if digit <= three.len() { ALPHABET[index] as char } else { '=' });
        }
    }
    out
}

/// Percent-encodes a query parameter's value.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    fn parse(text: &str) -> io::Result<(Response, bool)> {
        receive(&mut text.as_bytes())
    }

    #[test]
    fn answers_of_every_framing_are_read() {
        let (response, keep) = parse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        assert_eq!((response.status, response.body.as_str(), keep), (200, "hi", true));
        let (response, keep) = parse(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\
                   X-ClickHouse-Exception-Code: 60\r\nConnection: close\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        )
        .unwrap();
        assert_eq!(
            (response.status, response.exception, response.body.as_str(), keep),
            (500, Some(60), "abcde", false)
        );
        let (response, keep) = parse("HTTP/1.0 200 OK\r\n\r\nto the end").unwrap();
        assert_eq!((response.body.as_str(), keep), ("to the end", false));
        for broken in ["", "HTTP/1.1 200", "SSH-2.0\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_connection_is_kept_and_opened_again_when_the_server_closed_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let mut served = Vec::new();
            for requests in [2, 1] {
                let (stream, _) = listener.accept().unwrap();
                let mut stream = BufReader::new(stream);
                for _ in 0..requests {
                    let mut length = 0;
                    loop {
                        let line = line(&mut stream).unwrap();
                        if let Some(value) = line.strip_prefix("Content-Length: ") {
                            length = value.parse().unwrap();
                        }
                        if line.is_empty() {
                            break;
                        }
                    }
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).unwrap();
                    served.push(String::from_utf8(body).unwrap());
                    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                }
            }
            served
        });
        let mut connection = Connection::new(&host);
        for body in ["one", "two", "three"] {
            let (head, tail) = body.as_bytes().split_at(1);
            let response = connection.post("/", "", &[IoSlice::new(head), IoSlice::new(tail)]).unwrap();
            assert_eq!(response.status, 200);
        }
        assert_eq!(server.join().unwrap(), ["one", "two", "three"]);
    }

    #[test]
    fn text_is_encoded_for_headers_and_parameters() {
        assert_eq!(base64(b"user:pass"), "dXNlcjpwYXNz");
        assert_eq!(base64(b"ab"), "YWI=");
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(encode("INSERT INTO `t` ü"), "INSERT%20INTO%20%60t%60%20%C3%BC");
    }
}
