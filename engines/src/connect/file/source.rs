//! Lines of files and of standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::error::Error;

/// Bytes asked of the input at once.
const CHUNK: usize = 1 << 20;

/// Longest line.
const LONGEST: usize = 256 << 20;

/// One input, read in chunks of whole lines.
pub struct Lines {
    input: Box<dyn Read + Send>,
    name: Arc<str>,
    buffer: Vec<u8>,
    /// Where the bytes not handed out begin and end.
    from: usize,
    to: usize,
    /// Number of the last line handed out.
    line: u64,
    /// No more bytes will come.
    ended: bool,
    started: bool,
    longest: usize,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("name", &self.name).field("line", &self.line).finish_non_exhaustive()
    }
}

impl Lines {
    /// Opens a file; `.gz` and `.zst` are decompressed.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |e: io::Error| {
            Error::source(format!("{} cannot be opened: {e}", path.display()), "check the path and its permissions")
        };
        let file = File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.is_dir() {
            return Err(Error::source(
                format!("{} is a directory", path.display()),
                "name its files, for example with *.ndjson",
            ));
        }
        let input: Box<dyn Read + Send> = match path.extension().and_then(|e| e.to_str()) {
            Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Some("zst") => Box::new(zstd::stream::read::Decoder::new(file).map_err(fail)?),
            _ => Box::new(file),
        };
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self::new(input, &name))
    }

    /// Standard input.
    #[must_use]
    pub fn stdin() -> Self {
        Self::new(Box::new(Stdin), "stdin")
    }

    /// Any input.
    #[must_use]
    pub fn new(input: Box<dyn Read + Send>, name: &str) -> Self {
        Self {
            input,
            name: name.into(),
            buffer: Vec::new(),
            from: 0,
            to: 0,
            line: 0,
            ended: false,
            started: false,
            longest: LONGEST,
        }
    }

    /// The input's name, for messages.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Reads once more. False when the input has ended, or nothing came for a while.
    ///
    /// # Errors
    /// The input cannot be read, or a line is longer than any record should be.
    pub fn fill(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        if self.to >= self.longest && memchr::memchr(b'\n', &self.buffer[..self.to]).is_none() {
            let message = format!("{} line {} is longer than {} MiB", self.name, self.line + 1, LONGEST >> 20);
            return Err(Error::source(message, "the input must be lines of JSON"));
        }
        if self.buffer.len() < self.to + CHUNK {
            self.buffer.resize(self.to + CHUNK, 0);
        }
        match self.input.read(&mut self.buffer[self.to..]) {
            Ok(0) => self.ended = true,
            Ok(count) => self.to += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(e) => return Err(Error::source(format!("{} cannot be read: {e}", self.name), "check the input")),
        }
        if !self.started && (self.to >= 3 || self.ended) {
            self.started = true;
            if self.buffer[..self.to].starts_with(b"\xef\xbb\xbf") {
                self.from = 3;
            }
        }
        Ok(!self.ended)
    }

    /// Whether every byte has been read from the input.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Bytes read and not handed out.
    #[must_use]
    pub fn buffered(&self) -> &[u8] {
        if self.started { &self.buffer[self.from..self.to] } else { &[] }
    }

    /// The next whole line that is read already, without its newline, and its number from 1. A last line needs no newline.
    pub fn next_line(&mut self) -> Option<(u64, &[u8])> {
        if !self.started {
            return None;
        }
        let rest = &self.buffer[self.from..self.to];
        let (length, step) = match memchr::memchr(b'\n', rest) {
            Some(at) => (at, at + 1),
            None if self.ended && !rest.is_empty() => (rest.len(), rest.len()),
            None => return None,
        };
        let from = self.from;
        self.from += step;
        self.line += 1;
        Some((self.line, &self.buffer[from..from + length]))
    }
}

/// Standard input that says "interrupted" now and then while nothing comes, so that a request to stop is seen.
struct Stdin;

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const MILLISECONDS: libc::c_int = 100;
        let mut wanted = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
        // SAFETY: `wanted` is one valid entry for the length of the call.
        match unsafe { libc::poll(&raw mut wanted, 1, MILLISECONDS) } {
            0 => Err(io::ErrorKind::Interrupted.into()),
            1.. => io::stdin().read(buffer),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether a line holds nothing but white space.
#[must_use]
pub fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a few bytes per read.
    struct Drip(Vec<u8>, usize);

    impl Read for Drip {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    fn lines(text: &[u8], step: usize) -> Vec<(u64, Vec<u8>)> {
        let mut lines = Lines::new(Box::new(Drip(text.to_vec(), step)), "t");
        let mut all = Vec::new();
        loop {
            let more = lines.fill().unwrap();
            while let Some((number, line)) = lines.next_line() {
                all.push((number, line.to_vec()));
            }
            if !more {
                return all;
            }
        }
    }

    #[test]
    fn lines_do_not_depend_on_how_they_arrive() {
        let text = b"\xef\xbb\xbfa\r\n\n bb \nccc";
        let expected: Vec<(u64, Vec<u8>)> =
            vec![(1, b"a\r".to_vec()), (2, vec![]), (3, b" bb ".to_vec()), (4, b"ccc".to_vec())];
        for step in 1..20 {
            assert_eq!(lines(text, step), expected, "{step}");
        }
        assert!(lines(b"", 1).is_empty() && lines(b"\xef\xbb\xbf", 1).is_empty());
        assert_eq!(lines(b"\n", 1).len(), 1);
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut lines = Lines::new(Box::new(io::repeat(b'x')), "t");
        lines.longest = 3 * CHUNK;
        let error = (0..10).find_map(|_| lines.fill().err()).unwrap();
        assert_eq!(error.to_string(), "t line 1 is longer than 256 MiB");
    }
}
