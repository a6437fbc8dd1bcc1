//! Sources and sinks, one folder each: `config` (what the URI and the flags mean), `source`, `sink`.

use std::fmt;

use crate::error::Error;

pub mod clickhouse;
pub mod file;
pub mod kafka;
pub mod sink;
pub mod source;
pub mod stdout;

/// A source or sink as written on the command line: `scheme://user:password@host:port,host:port/path?key=value`.
///
/// A text without a scheme is a file path, `-` is standard input or output, `null` swallows all output.
#[derive(Clone, PartialEq, Eq)]
pub struct Uri {
    /// `file`, `kafka`, `clickhouse`, `stdin`, `stdout`, `null`, …
    pub scheme: String,
    /// User name, when given.
    pub user: Option<String>,
    /// Password, when given. Never printed.
    pub password: Option<String>,
    /// `host:port` entries in order; empty for files.
    pub hosts: Vec<String>,
    /// What follows the hosts, without the leading `/`; the whole path of a file as written.
    pub path: String,
    /// `key=value` pairs after `?`, in order.
    pub parameters: Vec<(String, String)>,
}

impl Uri {
    /// Reads the text of `--from`.
    ///
    /// # Errors
    /// The text has a scheme but no host or path, or a malformed percent escape.
    pub fn parse_source(text: &str) -> Result<Self, Error> {
        if text == "-" { Ok(Self::bare("stdin", "")) } else { Self::parse(text) }
    }

    /// Reads the text of `--to`.
    ///
    /// # Errors
    /// As [`Uri::parse_source`].
    pub fn parse_sink(text: &str) -> Result<Self, Error> {
        match text {
            "-" | "stdout" => Ok(Self::bare("stdout", "")),
            "null" => Ok(Self::bare("null", "")),
            _ => Self::parse(text),
        }
    }

    fn bare(scheme: &str, path: &str) -> Self {
        Self { scheme: scheme.into(), user: None, password: None, hosts: vec![], path: path.into(), parameters: vec![] }
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::bare("file", text));
        };
        if scheme == "file" {
            return if rest.is_empty() {
                Err(malformed(text, "there is no path"))
            } else {
                Ok(Self::bare("file", rest))
            };
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let hosts: Vec<String> = hosts.split(',').filter(|h| !h.is_empty()).map(str::to_owned).collect();
        if hosts.is_empty() {
            return Err(malformed(text, "there is no host"));
        }
        let decode = |part: &str| percent_decode(part).ok_or_else(|| malformed(text, "a percent escape is incomplete"));
        let (user, password) = match credentials.map(|c| c.split_once(':').unwrap_or((c, ""))) {
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
            None => (None, None),
        };
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((decode(key)?, decode(value)?));
        }
        Ok(Self { scheme: scheme.into(), user, password, hosts, path: decode(path)?, parameters })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.hosts.join(","))?;
        if !self.hosts.is_empty() && !self.path.is_empty() {
            f.write_str("/")?;
        }
        f.write_str(&self.path)
    }
}

impl fmt::Debug for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn malformed(text: &str, what: &str) -> Error {
    // The text may carry a password, so only its scheme is repeated.
    let scheme = text.split("://").next().unwrap_or("");
    Error::usage(
        format!("the {scheme}:// address cannot be read: {what}"),
        "write file://path, kafka://host:port/topic or clickhouse://host:port/database/table",
    )
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&b) = rest.next() {
        if b == b'%' {
            let high = (*rest.next()? as char).to_digit(16)?;
            let low = (*rest.next()? as char).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(b);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let u = Uri::parse_source("kafka://a:1,b:2/sensor-batches").unwrap();
        assert_eq!((u.scheme.as_str(), u.hosts.len(), u.path.as_str()), ("kafka", 2, "sensor-batches"));
        let u = Uri::parse_sink("clickhouse://me:p%40ss@ch:8123/default/t?x=1").unwrap();
        assert_eq!(u.password.as_deref(), Some("p@ss"));
        assert_eq!((u.path.as_str(), u.parameters.len()), ("default/t", 1));
        assert_eq!(u.to_string(), "clickhouse://ch:8123/default/t");
        assert_eq!(Uri::parse_source("dir/events.ndjson").unwrap().scheme, "file");
        assert_eq!(Uri::parse_source("file:///a/b.ndjson").unwrap().path, "/a/b.ndjson");
        assert_eq!(Uri::parse_source("-").unwrap().scheme, "stdin");
        assert_eq!(Uri::parse_sink("null").unwrap().scheme, "null");
    }

    #[test]
    fn a_broken_address_does_not_repeat_its_password() {
        let e = Uri::parse_sink("clickhouse://me:secret@/db/t").unwrap_err();
        assert!(!e.to_text().contains("secret"));
        assert!(Uri::parse_sink("clickhouse://h/%4").is_err());
    }
}
