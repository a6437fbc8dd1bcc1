//! A child mode's stdin: lines that its parent writes, read beside other events, and the end that means "let go".

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

/// Lines of a pipe, without a buffer that `poll` cannot see.
#[derive(Debug)]
pub(crate) struct Lines {
    pipe: File,
    pending: Vec<u8>,
    open: bool,
}

impl Lines {
    /// The lines of this process's stdin.
    pub(crate) fn of_stdin() -> std::io::Result<Self> {
        let pipe = std::io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self::of(pipe.into()))
    }

    fn of(pipe: File) -> Self {
        Self { pipe, pending: Vec::new(), open: true }
    }

    /// What to poll.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Whether the parent still holds its end.
    pub(crate) fn open(&self) -> bool {
        self.open
    }

    /// Reads what is there; blocks if nothing is. End of file and errors close it.
    pub(crate) fn fill(&mut self) {
        let mut chunk = [0_u8; 4096];
        match self.pipe.read(&mut chunk) {
            Ok(0) => self.open = false,
            Ok(got) => self.pending.extend_from_slice(&chunk[..got]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => self.open = false,
        }
    }

    /// The next line that has been read already, with its line feed.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        Some(self.pending.drain(..=end).collect())
    }

    /// The next line, blocking; `None` at end of file.
    pub(crate) fn wait(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(line) = self.next() {
                return Some(line);
            }
            if !self.open {
                return None;
            }
            self.fill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_come_whole_and_the_end_is_seen() {
        let (reader, mut writer) = std::io::pipe().expect("pipes are there");
        let mut lines = Lines::of(std::os::fd::OwnedFd::from(reader).into());
        writer.write_all(b"one\ntw").expect("open");
        assert_eq!(lines.wait().as_deref(), Some(b"one\n".as_slice()));
        assert_eq!(lines.next(), None);
        writer.write_all(b"o\nthr").expect("open");
        drop(writer);
        assert_eq!(lines.wait().as_deref(), Some(b"two\n".as_slice()));
        assert!(lines.open());
        assert_eq!(lines.wait(), None, "a line without its end is none");
        assert!(!lines.open());
    }
}
