//! ClickHouse's block framing, as `compress=1` and `decompress=1` put it on the wire.
//!
//! A frame is a 16-byte CityHash128 (version 1.0.2) of what follows, then a method byte, the frame's length without the
//! checksum (u32 LE), the length of its data once decompressed (u32 LE), and the compressed data.

use std::io::{self, Read};

const CHECKSUM: usize = 16;
const HEADER: usize = 9;
/// Largest frame accepted, compressed or not: ClickHouse's own limit.
const MAX_FRAME: usize = 0x4000_0000;
/// Uncompressed bytes put into one written frame.
const FRAME_DATA: usize = 1 << 20;

const LZ4: u8 = 0x82;
const ZSTD: u8 = 0x90;
const NONE: u8 = 0x02;

/// The checksum of a frame, in wire order.
fn checksum(frame: &[u8]) -> [u8; CHECKSUM] {
    cityhash_rs::cityhash_102_128(frame).rotate_right(64).to_le_bytes()
}

/// Appends `data` to `out` as LZ4 frames.
pub(super) fn frame(data: &[u8], out: &mut Vec<u8>) {
    for part in data.chunks(FRAME_DATA) {
        let start = out.len();
        let most = lz4_flex::block::get_maximum_output_size(part.len());
        out.resize(start + CHECKSUM + HEADER + most, 0);
        let body = start + CHECKSUM + HEADER;
        let length = lz4_flex::block::compress_into(part, &mut out[body..]).expect("the buffer has the maximum size");
        out.truncate(body + length);
        let header = start + CHECKSUM;
        out[header] = LZ4;
        out[header + 1..header + 5].copy_from_slice(&word(HEADER + length));
        out[header + 5..header + 9].copy_from_slice(&word(part.len()));
        let sum = checksum(&out[header..]);
        out[start..header].copy_from_slice(&sum);
    }
}

fn word(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a frame is far below 4 GiB").to_le_bytes()
}

/// Reads frames and yields their data.
pub(super) struct Unframer<R> {
    inner: R,
    frame: Vec<u8>,
    data: Vec<u8>,
    at: usize,
}

impl<R: Read> Unframer<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, frame: Vec::new(), data: Vec::new(), at: 0 }
    }

    /// Reads the next frame into `data`; false at a clean end.
    fn next_frame(&mut self) -> io::Result<bool> {
        let mut head = [0; CHECKSUM + HEADER];
        let mut got = 0;
        while got < head.len() {
            match self.inner.read(&mut head[got..])? {
                0 if got == 0 => return Ok(false),
                0 => return Err(bad("the body ends inside a compressed frame")),
                read => got += read,
            }
        }
        let (sum, header) = head.split_at(CHECKSUM);
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let (length, size) = (number(1), number(5));
        if !(HEADER..=MAX_FRAME).contains(&length) || size > MAX_FRAME {
            return Err(bad("a compressed frame states an impossible size"));
        }
        self.frame.clear();
        self.frame.extend_from_slice(header);
        (&mut self.inner).take((length - HEADER) as u64).read_to_end(&mut self.frame)?;
        if self.frame.len() != length {
            return Err(bad("the body ends inside a compressed frame"));
        }
        if checksum(&self.frame) != sum {
            return Err(bad("Checksum doesn't match: corrupted data"));
        }
        self.at = 0;
        let body = &self.frame[HEADER..];
        match header[0] {
            LZ4 => {
                // Bounded by what LZ4 can expand to, so a lying size cannot allocate.
                if size > body.len().saturating_mul(256) {
                    return Err(bad("a compressed frame states an impossible size"));
                }
                self.data.resize(size, 0);
                let got =
                    lz4_flex::block::decompress_into(body, &mut self.data).map_err(|error| bad(&error.to_string()))?;
                if got != size {
                    return Err(bad("a compressed frame holds less than it states"));
                }
            }
            ZSTD => {
                self.data.clear();
                zstd::stream::read::Decoder::new(body)?.take(size as u64 + 1).read_to_end(&mut self.data)?;
                if self.data.len() != size {
                    return Err(bad("a compressed frame holds another size than it states"));
                }
            }
            NONE if body.len() == size => {
                self.data.clear();
                self.data.extend_from_slice(body);
            }
            method => return Err(bad(&format!("Unknown compression method: {method:#04x}"))),
        }
        Ok(true)
    }
}

impl<R: Read> Read for Unframer<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.data.len() {
            if !self.next_frame()? {
                return Ok(0);
            }
        }
        let length = buffer.len().min(self.data.len() - self.at);
        buffer[..length].copy_from_slice(&self.data[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

fn bad(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unframe(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut data = Vec::new();
        Unframer::new(bytes).read_to_end(&mut data)?;
        Ok(data)
    }

    #[test]
    fn methods_none_and_zstd_are_read() {
        let data = b"abcabcabcabc".repeat(10);
        for (method, body) in
            [(NONE, data.clone()), (ZSTD, zstd::encode_all(data.as_slice(), 1).expect("zstd encodes"))]
        {
            let mut rest = vec![method];
            rest.extend_from_slice(&word(HEADER + body.len()));
            rest.extend_from_slice(&word(data.len()));
            rest.extend_from_slice(&body);
            let mut frame = checksum(&rest).to_vec();
            frame.extend_from_slice(&rest);
            assert_eq!(unframe(&frame).expect("the frame is sound"), data);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let mut frame = Vec::new();
        super::frame(b"some data, some data, some data", &mut frame);
        for at in 0..frame.len() {
            let mut damaged = frame.clone();
            damaged[at] ^= 0x40;
            assert!(unframe(&damaged).is_err(), "byte {at}");
            assert_eq!(unframe(&frame[..at]).is_ok(), at == 0, "cut at {at}");
        }
    }

    proptest::proptest! {
        #[test]
        fn frames_read_back(data: Vec<u8>, repeats in 1usize..2000) {
            let data = data.repeat(repeats);
            let mut framed = Vec::new();
            frame(&data, &mut framed);
            proptest::prop_assert_eq!(unframe(&framed).expect("own frames read"), data);
        }

        #[test]
        fn no_bytes_panic(data: Vec<u8>) {
            let _ = unframe(&data);
        }
    }
}
