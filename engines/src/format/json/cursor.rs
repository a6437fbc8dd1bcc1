//! A cursor over the text of one JSON record.
//!
//! It checks what it passes against RFC 8259, also where nothing is read: a record with an invalid value in a field no
//! query reads is still an invalid record. The caller has checked that the text is UTF-8.

/// Deepest nesting of a value.
const MAX_DEPTH: u32 = 128;

/// What is wrong, and the byte (counted from 0) where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) what: &'static str,
    pub(super) at: usize,
}

pub(super) type Parsed<T> = Result<T, Fault>;

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

/// The inside of a string literal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) escaped: bool,
}

/// A number literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) from: usize,
    pub(super) to: usize,
    /// It has neither a fraction nor an exponent.
    pub(super) integer: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn fault<T>(&self, what: &'static str) -> Parsed<T> {
        Err(Fault { what, at: self.at })
    }

    /// The next byte that is not white space, not passed yet; 0 at the end.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        while let Some(&b) = self.bytes.get(self.at) {
            if !matches!(b, b' ' | b'\t' | b'\n' | b'\r') {
                return b;
            }
            self.at += 1;
        }
        0
    }

    #[inline]
    pub(super) fn expect(&mut self, byte: u8, what: &'static str) -> Parsed<()> {
        if self.peek() == byte {
            self.at += 1;
            Ok(())
        } else {
            self.fault(what)
        }
    }

    /// Passes `null` when it is next.
    #[inline]
    pub(super) fn null(&mut self) -> Parsed<bool> {
        if self.peek() != b'n' {
            return Ok(false);
        }
        self.literal(b"null")?;
        Ok(true)
    }

    pub(super) fn literal(&mut self, word: &[u8]) -> Parsed<()> {
        if self.bytes[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            self.fault("expected a value")
        }
    }

    /// Passes a key and its colon.
    #[inline]
    pub(super) fn key(&mut self) -> Parsed<Text> {
        if self.peek() != b'"' {
            return self.fault("expected a key in double quotes");
        }
        let key = self.string()?;
        self.expect(b':', "expected a colon")?;
        Ok(key)
    }

    /// Passes a string whose opening quote is next. Escapes are checked for their form.
    #[inline]
    pub(super) fn string(&mut self) -> Parsed<Text> {
        let from = self.at + 1;
        let mut at = from;
        let mut escaped = false;
        loop {
            at += plain_length(&self.bytes[at..]);
            match self.bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(Text { from, to: at, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    at = self.escape(at)?;
                }
                Some(_) => return Err(Fault { what: "a control character in a string", at }),
                None => return Err(Fault { what: "the text ends inside a string", at }),
            }
        }
    }

    fn escape(&self, at: usize) -> Parsed<usize> {
        match self.bytes.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => match self.bytes.get(at + 2..at + 6) {
                Some(hex) if hex.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
                _ => Err(Fault { what: "\\u needs four hexadecimal digits", at }),
            },
            _ => Err(Fault { what: "an escape JSON does not have", at }),
        }
    }

    /// Passes a number whose first character is next.
    #[inline]
    pub(super) fn number(&mut self) -> Parsed<Number> {
        let from = self.at;
        let mut at = from + usize::from(self.bytes.get(from) == Some(&b'-'));
        match self.bytes.get(at) {
            Some(b'0') => at += 1,
            Some(b'1'..=b'9') => at += digits(&self.bytes[at..]),
            _ => return self.fault("expected a value"),
        }
        let mut integer = true;
        if self.bytes.get(at) == Some(&b'.') {
            integer = false;
            let fraction = digits(&self.bytes[at + 1..]);
            if fraction == 0 {
                return Err(Fault { what: "a number needs a digit after its point", at });
            }
            at += 1 + fraction;
        }
        if let Some(b'e' | b'E') = self.bytes.get(at) {
            integer = false;
            at += 1 + usize::from(matches!(self.bytes.get(at + 1), Some(b'+' | b'-')));
            let exponent = digits(&self.bytes[at.min(self.bytes.len())..]);
            if exponent == 0 {
                return Err(Fault { what: "a number needs a digit in its exponent", at });
            }
            at += exponent;
        }
        self.at = at;
        Ok(Number { from, to: at, integer })
    }

    /// Passes any value and says where it stands.
    pub(super) fn skip(&mut self) -> Parsed<(usize, usize)> {
        self.peek();
        let from = self.at;
        // Bit n of `objects` tells whether the n-th open container is an object.
        let (mut depth, mut objects) = (0_u32, 0_u128);
        loop {
            match self.peek() {
                open @ (b'{' | b'[') => {
                    if depth == MAX_DEPTH {
                        return self.fault("nested too deeply");
                    }
                    self.at += 1;
                    let object = open == b'{';
                    objects = objects & !(1 << depth) | (u128::from(object) << depth);
                    depth += 1;
                    if self.peek() != if object { b'}' } else { b']' } {
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                    self.at += 1;
                    depth -= 1;
                }
                b'"' => {
                    self.string()?;
                }
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => {
                    self.number()?;
                }
            }
            // Behind a value: close what ends here, or go on with the next member.
            loop {
                if depth == 0 {
                    return Ok((from, self.at));
                }
                let object = objects >> (depth - 1) & 1 == 1;
                match (self.peek(), object) {
                    (b',', _) => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        depth -= 1;
                    }
                    (_, true) => return self.fault("expected , or }"),
                    (_, false) => return self.fault("expected , or ]"),
                }
            }
        }
    }

    /// Nothing but white space follows.
    pub(super) fn end(&mut self) -> Parsed<()> {
        if self.peek() == 0 && self.at == self.bytes.len() { Ok(()) } else { self.fault("text after the record") }
    }

    /// Appends the decoded text of an escaped string.
    pub(super) fn unescape(&self, text: Text, out: &mut Vec<u8>) -> Parsed<()> {
        let mut at = text.from;
        while at < text.to {
            let plain = memchr::memchr(b'\\', &self.bytes[at..text.to]).unwrap_or(text.to - at);
            out.extend_from_slice(&self.bytes[at..at + plain]);
            at += plain;
            if at == text.to {
                break;
            }
            at += 2;
            let c = match self.bytes[at - 1] {
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'u' => {
                    let (c, to) = self.code_point(at, text.to)?;
                    at = to;
                    c
                }
                other => char::from(other),
            };
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }

    /// The character of `\uXXXX`, or of two such that are a surrogate pair, and where its text ends.
    fn code_point(&self, at: usize, end: usize) -> Parsed<(char, usize)> {
        let lone = Fault { what: "a lone surrogate is no character", at: at - 2 };
        let first = self.hex(at);
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first).map(|c| (c, at + 4)).ok_or(lone);
        }
        let paired = first < 0xdc00 && at + 10 <= end && &self.bytes[at + 4..at + 6] == b"\\u";
        let second = if paired { self.hex(at + 6) } else { 0 };
        if !(0xdc00..0xe000).contains(&second) {
            return Err(lone);
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).map(|c| (c, at + 10)).ok_or(lone)
    }

    /// Four digits that are known to be hexadecimal.
    fn hex(&self, at: usize) -> u32 {
        self.bytes[at..at + 4].iter().fold(0, |value, &b| value * 16 + char::from(b).to_digit(16).unwrap_or(0))
    }
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_digit()).count()
}

/// Bytes before the first quote, backslash or control character.
#[inline]
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let stops =
            control | zero_bytes(word ^ (ONES * u64::from(b'"'))) | zero_bytes(word ^ (ONES * u64::from(b'\\')));
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|&&b| b != b'"' && b != b'\\' && b >= 0x20).count()
}
