//! HTTP content encodings: gzip, deflate, zstd and lz4, read from request bodies and written to responses.

use std::io::{self, Read, Write};

/// A content encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Gzip,
    Deflate,
    Zstd,
    Lz4,
}

impl Encoding {
    /// The encoding a `Content-Encoding` value names; `Ok(None)` is no encoding, `Err` one that is not supported.
    pub(super) fn of_request(value: &str) -> Result<Option<Self>, String> {
        match value.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(None),
            name => Self::named(name).map(Some).ok_or_else(|| name.to_owned()),
        }
    }

    /// The encoding ClickHouse prefers among those an `Accept-Encoding` value lists.
    pub(super) fn of_response(accept: &str) -> Option<Self> {
        let offered: Vec<&str> = accept.split(',').filter_map(|part| part.split(';').next()).map(str::trim).collect();
        ["zstd", "lz4", "gzip", "deflate"].iter().find(|name| offered.contains(name)).and_then(|name| Self::named(name))
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "zstd" => Some(Self::Zstd),
            "lz4" => Some(Self::Lz4),
            _ => None,
        }
    }

    /// Its name in headers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }

    /// Decodes `inner`.
    pub(super) fn reader(self, inner: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(inner)),
            Self::Deflate => Box::new(flate2::read::ZlibDecoder::new(inner)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::new(inner)?),
            Self::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(inner)),
        })
    }
}

/// Encodes a response body piece by piece.
pub(super) enum Encoder {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Deflate(flate2::write::ZlibEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Lz4(Box<lz4_flex::frame::FrameEncoder<Vec<u8>>>),
}

impl Encoder {
    /// `level` is `http_zlib_compression_level`, 1 to 9.
    pub(super) fn new(encoding: Encoding, level: u32) -> io::Result<Self> {
        let level = level.clamp(1, 9);
        Ok(match encoding {
            Encoding::Gzip => Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level))),
            Encoding::Deflate => {
                Self::Deflate(flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(level)))
            }
            Encoding::Zstd => Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), 1)?),
            Encoding::Lz4 => Self::Lz4(Box::new(lz4_flex::frame::FrameEncoder::new(Vec::new()))),
        })
    }

    /// Encodes `data` and takes what has come out so far, possibly nothing.
    pub(super) fn push(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(data).map(|()| std::mem::take(encoder.get_mut())),
            Self::Deflate(encoder) => encoder.write_all(data).map(|()| std::mem::take(encoder.get_mut())),
            Self::Zstd(encoder) => encoder.write_all(data).map(|()| std::mem::take(encoder.get_mut())),
            Self::Lz4(encoder) => encoder.write_all(data).map(|()| std::mem::take(encoder.get_mut())),
        }
    }

    /// Ends the body and gives its last bytes.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Deflate(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Lz4(encoder) => encoder.finish().map_err(io::Error::other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_reads_back_what_it_wrote() {
        let data = b"0123456789abcdef".repeat(50_000);
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd, Encoding::Lz4] {
            let mut encoder = Encoder::new(encoding, 3).expect("the encoder starts");
            let mut wire = Vec::new();
            for part in data.chunks(70_001) {
                wire.extend(encoder.push(part).expect("a part is encoded"));
            }
            wire.extend(encoder.finish().expect("the end is encoded"));
            assert!(wire.len() < data.len());
            let mut back = Vec::new();
            let mut reader = encoding.reader(Box::new(io::Cursor::new(wire))).expect("the decoder starts");
            reader.read_to_end(&mut back).expect("it decodes");
            assert_eq!(back, data, "{encoding:?}");
        }
    }

    #[test]
    fn headers_are_understood() {
        assert_eq!(Encoding::of_request("GZIP"), Ok(Some(Encoding::Gzip)));
        assert_eq!(Encoding::of_request("identity"), Ok(None));
        assert_eq!(Encoding::of_request("br"), Err("br".to_owned()));
        assert_eq!(Encoding::of_response("gzip, deflate;q=0.5, lz4"), Some(Encoding::Lz4));
        assert_eq!(Encoding::of_response("br"), None);
    }
}
