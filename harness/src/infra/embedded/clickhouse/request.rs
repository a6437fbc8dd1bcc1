//! What a request asks for, from its URL, headers and form fields, by the names and precedence of ClickHouse.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderMap, Method, header};

use super::encoding::Encoding;
use super::exception::{Exception, codes};

/// Output is held back up to this many bytes, so that an early exception still sets the status.
const BUFFER: usize = 1 << 20;
/// Longest `session_timeout`, as ClickHouse's default `max_session_timeout`.
const MAX_SESSION: Duration = Duration::from_secs(3600);

/// A named session to run in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionRequest {
    pub(super) id: String,
    pub(super) timeout: Duration,
    /// It must exist already.
    pub(super) check: bool,
}

/// A request, without its body.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// The `query` parameter.
    pub(super) query: Option<String>,
    pub(super) query_id: Option<String>,
    pub(super) database: Option<String>,
    /// Settings of this request, in order.
    pub(super) settings: Vec<(String, String)>,
    /// Query parameters (`param_x`), without the prefix.
    pub(super) parameters: Vec<(String, String)>,
    /// Output format of a query that names none.
    pub(super) format: Option<String>,
    /// The response is framed (`compress=1`).
    pub(super) compress: bool,
    /// The body is framed (`decompress=1`).
    pub(super) decompress: bool,
    pub(super) wait_end_of_query: bool,
    pub(super) buffer: usize,
    pub(super) session: Option<SessionRequest>,
    /// The body's content encoding.
    pub(super) encoding: Option<Encoding>,
    /// The response's, when the client accepts one and has not switched it off.
    pub(super) accepts: Option<Encoding>,
    pub(super) compression_level: u32,
    pub(super) user: String,
    pub(super) password: String,
    /// The method promises to change nothing.
    pub(super) read_only: bool,
    /// Files or external tables were sent along.
    pub(super) external: bool,
}

impl Request {
    /// Reads the parameters `pairs` (of the URL, then of a form) and the headers.
    pub(super) fn new(method: &Method, pairs: Vec<(String, String)>, headers: &HeaderMap) -> Result<Self, Exception> {
        let mut request = Self { buffer: BUFFER, compression_level: 3, ..Self::default() };
        let mut named = BTreeMap::new();
        let mut compress_http = true;
        for (name, value) in pairs {
            match name.as_str() {
                "query" => request.query.get_or_insert_default().push_str(&value),
                "database" => request.database = Some(value),
                "default_format" => request.format = Some(value),
                "query_id" => request.query_id = Some(value).filter(|id| !id.is_empty()),
                "compress" => request.compress = flag(&name, &value)?,
                "decompress" => request.decompress = flag(&name, &value)?,
                "wait_end_of_query" | "http_wait_end_of_query" => request.wait_end_of_query = flag(&name, &value)?,
                "buffer_size" | "http_response_buffer_size" => request.buffer = number(&name, &value)?,
                "enable_http_compression" => compress_http = flag(&name, &value)?,
                "http_zlib_compression_level" => request.compression_level = number(&name, &value)?,
                "user" | "password" | "session_id" | "session_timeout" | "session_check" => {
                    named.insert(name, value);
                }
                // Accepted and without meaning here: quotas, roles and the server's own log.
                "quota_key" | "role" | "stacktrace" | "client_protocol_version" | "close_session" => {}
                _ if name.starts_with("param_") => request.parameters.push((name["param_".len()..].to_owned(), value)),
                _ if is_external(&name) => request.external = true,
                _ => request.settings.push((name, value)),
            }
        }
        request.read_headers(headers, compress_http)?;
        request.session = session(&named)?;
        request.authenticate(&named, headers)?;
        request.read_only = *method == Method::GET || *method == Method::HEAD;
        Ok(request)
    }

    fn read_headers(&mut self, headers: &HeaderMap, compress_http: bool) -> Result<(), Exception> {
        if let Some(database) = text(headers, "X-ClickHouse-Database") {
            self.database = Some(database.to_owned());
        }
        if let Some(format) = text(headers, "X-ClickHouse-Format") {
            self.format = Some(format.to_owned());
        }
        self.database = self.database.take().filter(|database| !database.is_empty());
        self.format = self.format.take().filter(|format| !format.is_empty());
        let coding = text(headers, header::CONTENT_ENCODING.as_str()).unwrap_or_default();
        self.encoding = Encoding::of_request(coding).map_err(|name| {
            Exception::new(
                codes::NOT_IMPLEMENTED,
                format_args!("Content-Encoding '{name}' is not supported; use gzip, deflate, zstd or lz4"),
            )
        })?;
        if compress_http && !self.compress {
            self.accepts = text(headers, header::ACCEPT_ENCODING.as_str()).and_then(Encoding::of_response);
        }
        Ok(())
    }

    /// Takes the user and password from exactly one of the places they may be.
    fn authenticate(&mut self, named: &BTreeMap<String, String>, headers: &HeaderMap) -> Result<(), Exception> {
        let user = text(headers, "X-ClickHouse-User");
        let key = text(headers, "X-ClickHouse-Key");
        let by_header = user.is_some_and(|user| !user.is_empty()) || key.is_some_and(|key| !key.is_empty());
        let basic = text(headers, header::AUTHORIZATION.as_str());
        let by_parameter = named.contains_key("user") || named.contains_key("password");
        let denied = |message: &str| {
            Exception::new(codes::AUTHENTICATION_FAILED, format_args!("Invalid authentication: {message}"))
        };
        let both = |a: &str, b: &str| denied(&format!("it is not allowed to use {a} and {b} simultaneously"));
        let (user, password) = match (by_header, basic, by_parameter) {
            (true, Some(_), _) => return Err(both("X-ClickHouse HTTP headers", "Authorization HTTP header")),
            (true, _, true) => return Err(both("X-ClickHouse HTTP headers", "authentication via parameters")),
            (_, Some(_), true) => return Err(both("Authorization HTTP header", "authentication via parameters")),
            (true, ..) => (user.unwrap_or_default().to_owned(), key.unwrap_or_default().to_owned()),
            (_, Some(value), _) => basic_credentials(value)
                .ok_or_else(|| denied("the Authorization HTTP header is not of the Basic scheme"))?,
            _ => {
                let get = |name: &str| named.get(name).cloned();
                (get("user").unwrap_or_else(|| "default".to_owned()), get("password").unwrap_or_default())
            }
        };
        if user.is_empty() {
            return Err(Exception::new(codes::AUTHENTICATION_FAILED, "Got an empty user name"));
        }
        (self.user, self.password) = (user, password);
        Ok(())
    }
}

fn session(named: &BTreeMap<String, String>) -> Result<Option<SessionRequest>, Exception> {
    let Some(id) = named.get("session_id").filter(|id| !id.is_empty()) else {
        return Ok(None);
    };
    let seconds = named.get("session_timeout").map_or("60", String::as_str);
    let timeout = seconds.parse().map(Duration::from_secs).ok().filter(|timeout| *timeout <= MAX_SESSION);
    let timeout = timeout.ok_or_else(|| {
        let allowed = MAX_SESSION.as_secs();
        Exception::new(
            codes::INVALID_SESSION_TIMEOUT,
            format_args!("Invalid session timeout: '{seconds}'. Maximum session timeout: {allowed}"),
        )
    })?;
    let check = named.get("session_check").map_or(Ok(false), |value| flag("session_check", value))?;
    Ok(Some(SessionRequest { id: id.clone(), timeout, check }))
}

/// `<table>_format`, `<table>_types` and `<table>_structure` describe external tables, unless they are settings.
fn is_external(name: &str) -> bool {
    ["_types", "_structure"].iter().any(|suffix| name.ends_with(suffix)) && !name.starts_with("input_format_")
}

fn flag(name: &str, value: &str) -> Result<bool, Exception> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => {
            Err(Exception::new(codes::BAD_ARGUMENTS, format_args!("Parameter '{name}' must be 0 or 1, not '{value}'")))
        }
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, Exception> {
    value.parse().map_err(|_| {
        Exception::new(codes::BAD_ARGUMENTS, format_args!("Parameter '{name}' must be a number, not '{value}'"))
    })
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
}

fn basic_credentials(value: &str) -> Option<(String, String)> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let decoded = String::from_utf8(base64(encoded.trim())?).ok()?;
    decoded.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

/// Decodes standard base64.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut held) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    Some(out)
}

/// Splits a URL's query string into decoded pairs.
pub(super) fn query_pairs(query: &str) -> Result<Vec<(String, String)>, Exception> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Decodes `%xx` and `+`.
fn decode(text: &str) -> Result<String, Exception> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (byte, digits.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 3;
                continue;
            }
            (b'%', None) => {
                return Err(Exception::new(
                    codes::BAD_ARGUMENTS,
                    format_args!("Bad percent-encoding in the URL: '{text}'"),
                ));
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).map_err(|_| {
        Exception::new(codes::BAD_ARGUMENTS, format_args!("The URL holds text that is not UTF-8: '{text}'"))
    })
}

/// Fields of a `multipart/form-data` body. A part with a file name is an external table, which `false` reports.
pub(super) fn form_fields(boundary: &str, body: &[u8]) -> Option<(Vec<(String, String)>, bool)> {
    let body = [b"\r\n", body].concat();
    let mark = format!("\r\n--{boundary}");
    let mut fields = Vec::new();
    let mut plain = true;
    let mut rest = &body[find(&body, mark.as_bytes())? + mark.len()..];
    while !rest.starts_with(b"--") {
        rest = rest.strip_prefix(b"\r\n")?;
        let end = find(rest, mark.as_bytes())?;
        let (head, value) = split(&rest[..end], b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(head);
        plain &= !head.contains("filename=");
        let name = head.split("name=\"").nth(1).and_then(|tail| tail.split('"').next())?;
        fields.push((name.to_owned(), String::from_utf8(value.to_vec()).ok()?));
        rest = &rest[end + mark.len()..];
    }
    Some((fields, plain))
}

/// The boundary of a `multipart/form-data` content type.
pub(super) fn form_boundary(headers: &HeaderMap) -> Option<String> {
    let value = text(headers, header::CONTENT_TYPE.as_str())?;
    let value = value.strip_prefix("multipart/form-data")?;
    value
        .split(';')
        .find_map(|part| part.trim().strip_prefix("boundary="))
        .map(|boundary| boundary.trim_matches('"').to_owned())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn split<'a>(text: &'a [u8], part: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = find(text, part)?;
    Some((&text[..at], &text[at + part.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(query: &str, headers: &[(&str, &str)]) -> Result<Request, Exception> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: header::HeaderName = name.parse().expect("a header name");
            map.insert(name, value.parse().expect("a header value"));
        }
        Request::new(&Method::POST, query_pairs(query)?, &map)
    }

    #[test]
    fn parameters_are_told_apart_from_settings() {
        let request =
            request("query=SELECT+%7Bx:UInt8%7D&param_x=1&max_threads=2&database=d&compress=1&session_id=s", &[])
                .expect("the request is sound");
        assert_eq!(request.query.as_deref(), Some("SELECT {x:UInt8}"));
        assert_eq!(request.parameters, [("x".to_owned(), "1".to_owned())]);
        assert_eq!(request.settings, [("max_threads".to_owned(), "2".to_owned())]);
        assert_eq!(request.database.as_deref(), Some("d"));
        assert!(request.compress && !request.decompress);
        assert_eq!(request.session.expect("a session").timeout, Duration::from_secs(60));
    }

    #[test]
    fn credentials_come_from_one_place() {
        let basic = request("", &[("authorization", "Basic YTpiOmM=")]).expect("basic");
        assert_eq!((basic.user.as_str(), basic.password.as_str()), ("a", "b:c"));
        let header = request("", &[("x-clickhouse-user", "u"), ("x-clickhouse-key", "k")]).expect("headers");
        assert_eq!((header.user.as_str(), header.password.as_str()), ("u", "k"));
        assert_eq!(request("", &[]).expect("none").user, "default");
        for (query, headers) in
            [("user=a", [("x-clickhouse-user", "u")]), ("", [("authorization", "Bearer x")]), ("user=", [("x", "y")])]
        {
            assert_eq!(request(query, &headers).expect_err("refused").code, 516, "{query}");
        }
    }

    #[test]
    fn bad_urls_are_refused() {
        for query in ["query=%zz", "query=%f", "query=%ff", "compress=maybe", "buffer_size=x"] {
            assert_eq!(request(query, &[]).expect_err("refused").code, 36, "{query}");
        }
        assert_eq!(request("session_id=a&session_timeout=99999", &[]).expect_err("refused").code, 374);
    }

    #[test]
    fn forms_are_read() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"query\"\r\n\r\nSELECT\r\n1\r\n--b\r\n\
                    Content-Disposition: form-data; name=\"param_x\"\r\n\r\n2\r\n--b--\r\n";
        let (fields, plain) = form_fields("b", body.as_bytes()).expect("a sound form");
        assert!(plain);
        assert_eq!(fields[0], ("query".to_owned(), "SELECT\r\n1".to_owned()));
        assert_eq!(fields[1], ("param_x".to_owned(), "2".to_owned()));
        assert!(form_fields("b", b"--b\r\nbroken").is_none());
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics(query: String, body: Vec<u8>, boundary in "[a-z]{0,3}") {
            let _ = query_pairs(&query);
            let _ = form_fields(&boundary, &body);
            let _ = base64(&query);
        }
    }
}
