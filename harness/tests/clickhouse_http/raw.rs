//! Raw HTTP, feature by feature.

use std::io::{Read, Write};
use std::net::Shutdown;

use crate::server::{Server, read, send};

/// Percent-encodes a statement for a URL.
fn url(sql: &str) -> String {
    sql.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn query(sql: &str) -> String {
    format!("/?query={}", url(sql))
}

fn table(server: &Server) {
    server.sql("CREATE TABLE t (a UInt64, s String) ENGINE = MergeTree ORDER BY a");
}

#[test]
fn health_and_routes() {
    let server = Server::start();
    for path in ["/ping", "/", "/replicas_status"] {
        assert_eq!(server.request("GET", path, &[], b"").text(), "Ok.\n", "{path}");
    }
    let unknown = server.request("GET", "/nowhere", &[], b"");
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().starts_with("There is no handle /nowhere"));
    assert_eq!(server.request("DELETE", "/", &[], b"").status, 405);
}

#[test]
fn queries_come_by_url_body_or_both() {
    let server = Server::start();
    assert_eq!(server.request("GET", &query("SELECT 1"), &[], b"").text(), "1\n");
    assert_eq!(server.post("/", b"SELECT 2").text(), "2\n");
    assert_eq!(server.post("/?query=SELECT", b"3").text(), "3\n");
    assert_eq!(server.post(&query("SELECT {x:UInt8} + {y:UInt8}"), b"").status, 500);
    assert_eq!(
        server.post(&format!("{}&param_x=1&param_y=2", query("SELECT {x:UInt8} + {y:UInt8}")), b"").text(),
        "3\n"
    );
    assert_eq!(server.post("/?database=system", b"SELECT currentDatabase()").text(), "system\n");
    let header = [("X-ClickHouse-Database", "information_schema"), ("X-ClickHouse-Format", "JSONEachRow")];
    assert_eq!(
        server.request("POST", "/?database=system", &header, b"SELECT currentDatabase() AS d").text(),
        "{\"d\":\"information_schema\"}\n"
    );
    let form = "--b\r\nContent-Disposition: form-data; name=\"query\"\r\n\r\nSELECT {x:UInt8}\r\n--b\r\n\
                Content-Disposition: form-data; name=\"param_x\"\r\n\r\n7\r\n--b--\r\n";
    let kind = [("Content-Type", "multipart/form-data; boundary=b")];
    assert_eq!(server.request("POST", "/", &kind, form.as_bytes()).text(), "7\n");
    assert_eq!(server.post("/", b"").status, 400);
    assert_eq!(server.post("/", b"SELECT 1; SELECT 2").header("x-clickhouse-exception-code"), "62");
}

#[test]
fn settings_are_of_the_request_alone() {
    let server = Server::start();
    let asked = server.post(&format!("{}&max_block_size=77", query("SELECT getSetting('max_block_size')")), b"");
    assert_eq!(asked.text(), "77\n");
    assert_eq!(server.sql("SELECT getSetting('max_block_size')"), "65409");
    let unknown = server.post("/?no_such_setting=1", b"SELECT 1");
    assert_eq!((unknown.status, unknown.header("x-clickhouse-exception-code")), (404, "115"));
    assert!(unknown.text().contains("UNKNOWN_SETTING"), "{}", unknown.text());
    assert_eq!(server.post("/?max_threads=many", b"SELECT 1").status, 400);
    let get = server.request("GET", &query("CREATE TABLE x (a Int8) ENGINE = Memory"), &[], b"");
    assert_eq!(get.header("x-clickhouse-exception-code"), "164");
}

#[test]
fn errors_are_written_as_clickhouse_writes_them() {
    let server = Server::start();
    table(&server);
    for (sql, status, code, name) in [
        ("SELECT * FROM nope", 404, "60", "UNKNOWN_TABLE"),
        ("SELEC 1", 400, "62", "SYNTAX_ERROR"),
        ("SELECT x", 404, "47", "UNKNOWN_IDENTIFIER"),
        ("SELECT 1 FORMAT NoSuch", 404, "73", "UNKNOWN_FORMAT"),
        ("SELECT throwIf(1)", 500, "395", "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"),
        ("INSERT INTO nope FORMAT TSV\n1\n", 404, "60", "UNKNOWN_TABLE"),
        ("INSERT INTO t FORMAT TSV\nx\ty\n", 400, "27", "CANNOT_PARSE_INPUT_ASSERTION_FAILED"),
        ("USE nope", 404, "81", "UNKNOWN_DATABASE"),
    ] {
        let answer = server.post("/", sql.as_bytes());
        let text = answer.text();
        assert_eq!((answer.status, answer.header("x-clickhouse-exception-code")), (status, code), "{sql}: {text}");
        assert!(text.starts_with(&format!("Code: {code}. DB::Exception: ")), "{sql}: {text}");
        assert!(text.ends_with(&format!(" ({name}) (version 26.7.2.1)\n")), "{sql}: {text}");
        assert_eq!(text.matches("DB::Exception").count(), 1, "{sql}: {text}");
    }
    for target in ["/?query=%zz", "/?compress=x", "/?query=%ff"] {
        assert_eq!(server.post(target, b"").status, 400, "{target}");
    }
    assert_eq!(server.sql("SELECT count() FROM t"), "0");
}

#[test]
fn an_error_in_the_middle_of_rows_cuts_the_answer() {
    let server = Server::start();
    let sql = b"SELECT number, throwIf(number = 3000000) FROM numbers(10000000)";
    let cut = server.post("/", sql);
    assert_eq!((cut.status, cut.whole), (200, false));
    let tag = cut.header("x-clickhouse-exception-tag");
    let text = cut.text();
    let end = format!(" {tag}\r\n__exception__\r\n");
    let (rest, tail) = text.split_once(&format!("\r\n__exception__\r\n{tag}\r\n")).expect("the exception is marked");
    assert!(rest.len() > 1 << 20);
    let (message, length) = tail.strip_suffix(&end).and_then(|tail| tail.rsplit_once('\n')).expect("its length");
    assert_eq!(length.parse(), Ok(message.len() + 1));
    assert!(message.starts_with("Code: 395. DB::Exception: "));
    let held = server.post("/?wait_end_of_query=1", sql);
    assert_eq!((held.status, held.whole), (500, true));
    assert!(held.text().starts_with("Code: 395."));
}

#[test]
fn users_are_checked() {
    let server = Server::with(&["--user", "bob:secret", "--user", "default:pass"]);
    let select = |headers: &[(&str, &str)], target: &str| server.request("POST", target, headers, b"SELECT 1");
    assert_eq!(select(&[("X-ClickHouse-User", "bob"), ("X-ClickHouse-Key", "secret")], "/").text(), "1\n");
    assert_eq!(select(&[("Authorization", "Basic Ym9iOnNlY3JldA==")], "/").text(), "1\n");
    assert_eq!(select(&[], "/?user=bob&password=secret").text(), "1\n");
    assert_eq!(select(&[], "/?password=pass").text(), "1\n");
    for answer in [
        select(&[], "/"),
        select(&[("X-ClickHouse-User", "bob"), ("X-ClickHouse-Key", "no")], "/"),
        select(&[("X-ClickHouse-User", "eve")], "/"),
        select(&[("X-ClickHouse-User", "bob"), ("X-ClickHouse-Key", "secret")], "/?user=bob"),
    ] {
        assert_eq!((answer.status, answer.header("x-clickhouse-exception-code")), (403, "516"));
        assert!(answer.text().starts_with("Code: 516. DB::Exception: "), "{}", answer.text());
    }
}

#[test]
fn formats_and_headers() {
    let server = Server::start();
    for (format, content_type) in [
        ("TabSeparated", "text/tab-separated-values; charset=UTF-8"),
        ("JSON", "application/json; charset=UTF-8"),
        ("JSONEachRow", "application/x-ndjson; charset=UTF-8"),
        ("CSV", "text/csv; charset=UTF-8; header=absent"),
        ("Native", "application/octet-stream"),
        ("RowBinary", "application/octet-stream"),
        ("Parquet", "application/octet-stream"),
        ("Vertical", "text/plain; charset=UTF-8"),
    ] {
        for (target, sql) in [
            (format!("/?default_format={format}"), "SELECT 1".to_owned()),
            ("/".into(), format!("SELECT 1 FORMAT {format}")),
        ] {
            let answer = server.post(&target, sql.as_bytes());
            assert_eq!(answer.header("content-type"), content_type, "{format}");
            assert_eq!(answer.header("x-clickhouse-format"), format);
            assert!(!answer.body.is_empty(), "{format}");
        }
    }
    let answer = server.post("/?query_id=mine", b"SELECT number FROM numbers(5)");
    assert_eq!(answer.header("x-clickhouse-query-id"), "mine");
    assert!(!answer.header("x-clickhouse-timezone").is_empty());
    assert!(!answer.header("x-clickhouse-server-display-name").is_empty());
    assert!(answer.header("x-clickhouse-summary").starts_with("{\"read_rows\":\"5\",\"read_bytes\":\"40\""));
}

#[test]
fn inserts_report_what_they_wrote_and_accept_every_place() {
    let server = Server::start();
    table(&server);
    let insert = server.post(&query("INSERT INTO t FORMAT TSV"), b"1\ta\n2\tb\n");
    assert_eq!(insert.status, 200);
    assert!(insert.header("x-clickhouse-summary").contains("\"written_rows\":\"2\""), "{insert:?}");
    assert_eq!(server.post("/", b"INSERT INTO t FORMAT JSONEachRow\n{\"a\":3,\"s\":\"c\"}").status, 200);
    assert_eq!(server.post("/", b"INSERT INTO t (s, a) VALUES ('d', 4), ('e', 5);").status, 200);
    assert_eq!(server.post(&query("INSERT INTO t VALUES"), b"(6, 'f')").status, 200);
    assert_eq!(server.post(&query("INSERT INTO t SETTINGS max_threads = 1 FORMAT CSV"), b"7,g\n").status, 200);
    assert_eq!(server.post("/", b"INSERT INTO t SELECT number + 8, 'h' FROM numbers(2)").status, 200);
    assert_eq!(server.sql("SELECT groupArray(a) FROM (SELECT a FROM t ORDER BY a)"), "[1,2,3,4,5,6,7,8,9]");
    let native = server.post("/", b"SELECT * FROM t FORMAT Native").body;
    assert_eq!(server.post(&query("INSERT INTO t FORMAT Native"), &native).status, 200);
    assert_eq!(server.sql("SELECT count(), uniq(a) FROM t"), "18\t9");
    assert_eq!(server.post("/", b"INSERT INTO t SELECT a, '' FROM input('a UInt8') FORMAT CSV\n1").status, 501);
}

#[test]
fn one_insert_is_one_part() {
    let server = Server::start();
    table(&server);
    let block = server.post("/", b"SELECT number AS a, 'x' AS s FROM numbers(1000) FORMAT Native").body;
    assert_eq!(server.post(&query("INSERT INTO t FORMAT Native"), &block.repeat(50)).status, 200);
    assert_eq!(server.sql("SELECT count(), sum(rows) FROM system.parts WHERE table = 't' AND active"), "1\t50000");
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).expect("gzip");
    encoder.finish().expect("gzip")
}

fn lz4(data: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(data).expect("lz4");
    encoder.finish().expect("lz4")
}

#[test]
fn content_encodings_both_ways() {
    let server = Server::start();
    table(&server);
    let data: Vec<u8> = (0..50_000).flat_map(|row| format!("{row}\trow {row}\n").into_bytes()).collect();
    let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    deflate.write_all(&data).expect("deflate");
    let bodies = [
        ("gzip", gzip(&data)),
        ("zstd", zstd::encode_all(data.as_slice(), 1).expect("zstd")),
        ("lz4", lz4(&data)),
        ("deflate", deflate.finish().expect("deflate")),
    ];
    for (encoding, body) in &bodies {
        let target = query("INSERT INTO t FORMAT TSV");
        let answer = server.request("POST", &target, &[("Content-Encoding", encoding)], body);
        assert_eq!(answer.status, 200, "{encoding}: {}", answer.text());
        assert_eq!(server.sql("SELECT count(), uniqExact(s), sum(a) FROM t"), "50000\t50000\t1249975000", "{encoding}");
        server.sql("TRUNCATE TABLE t");
        let cut = server.request("POST", &target, &[("Content-Encoding", encoding)], &body[..body.len() / 2]);
        assert_ne!(cut.status, 200, "{encoding}");
        assert_eq!(server.sql("SELECT count() FROM t"), "0", "a cut {encoding} body");
    }
    assert_eq!(server.request("POST", "/", &[("Content-Encoding", "br")], b"x").status, 501);
    let sql = "SELECT number, toString(number) FROM numbers(300000)";
    let plain = server.post("/", sql.as_bytes()).body;
    for encoding in ["gzip", "zstd", "lz4", "deflate"] {
        let answer =
            server.request("POST", "/?enable_http_compression=1", &[("Accept-Encoding", encoding)], sql.as_bytes());
        assert_eq!(answer.header("content-encoding"), encoding);
        let mut back = Vec::new();
        let body = answer.body.as_slice();
        match encoding {
            "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut back),
            "deflate" => flate2::read::ZlibDecoder::new(body).read_to_end(&mut back),
            "zstd" => zstd::stream::read::Decoder::new(body).expect("zstd").read_to_end(&mut back),
            _ => lz4_flex::frame::FrameDecoder::new(body).read_to_end(&mut back),
        }
        .expect("it decodes");
        assert!(back == plain, "{encoding}");
    }
    let off = server.request("POST", "/?enable_http_compression=0", &[("Accept-Encoding", "gzip")], b"SELECT 1");
    assert_eq!((off.header("content-encoding"), off.text().as_str()), ("", "1\n"));
}

#[test]
fn native_framing_both_ways() {
    let server = Server::start();
    table(&server);
    let framed = server.post("/?compress=1", b"SELECT number AS a, 'x' AS s FROM numbers(200000) FORMAT Native").body;
    assert_eq!(framed[16], 0x82, "the frame's method is LZ4");
    let answer = server.post(&format!("{}&decompress=1", query("INSERT INTO t FORMAT Native")), &framed);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(server.sql("SELECT count(), sum(a) FROM t"), "200000\t19999900000");
    let mut damaged = framed;
    damaged[40] ^= 1;
    let answer = server.post(&format!("{}&decompress=1", query("INSERT INTO t FORMAT Native")), &damaged);
    assert_ne!(answer.status, 200);
    assert!(answer.text().contains("Checksum"), "{}", answer.text());
    assert_eq!(server.sql("SELECT count() FROM t"), "200000");
}

#[test]
fn a_deduplication_token_makes_an_insert_idempotent() {
    let server = Server::start();
    server.sql(
        "CREATE TABLE d (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 100",
    );
    let target = query("INSERT INTO d FORMAT TSV");
    for (token, rows) in [("x", "1"), ("x", "1"), ("y", "2"), ("y", "2")] {
        assert_eq!(server.post(&format!("{target}&insert_deduplication_token={token}"), b"1\n").status, 200);
        assert_eq!(server.sql("SELECT count() FROM d"), rows, "{token}");
    }
}

#[test]
fn keep_alive_and_expect_continue() {
    let server = Server::start();
    let mut stream = server.connect();
    for number in 0..20 {
        send(&mut stream, "POST", "/", &[], format!("SELECT {number}").as_bytes());
        assert_eq!(read(&mut stream).text(), format!("{number}\n"));
        send(&mut stream, "POST", "/", &[], b"SELECT nothing");
        assert_eq!(read(&mut stream).status, 404);
    }
    let mut stream = server.connect();
    write!(stream, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n")
        .expect("the head");
    let mut go = [0; 25];
    stream.read_exact(&mut go).expect("the interim answer");
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"SELECT 5").expect("the body");
    assert_eq!(read(&mut stream).text(), "5\n");
}

#[test]
fn bad_requests_do_not_stop_the_server() {
    let server = Server::start();
    let long = "x".repeat(100_000);
    let many = "X-A: b\r\n".repeat(500);
    for bytes in [
        "nonsense\r\n\r\n".to_owned(),
        format!("GET /?query={long} HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"),
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: no\r\n\r\n".to_owned(),
    ] {
        let mut stream = server.connect();
        stream.write_all(bytes.as_bytes()).expect("it is sent");
        stream.shutdown(Shutdown::Write).expect("the end is sent");
        let mut answer = Vec::new();
        // A reset is as good an answer as a status.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(server.sql("SELECT 1"), "1");
}

#[test]
fn a_client_that_leaves_inserts_nothing() {
    let server = Server::start();
    table(&server);
    let mut stream = server.connect();
    let head =
        format!("POST {} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", query("INSERT INTO t FORMAT TSV"));
    stream.write_all(head.as_bytes()).expect("the head");
    let rows = "1\ta\n".repeat(10_000);
    write!(stream, "{:x}\r\n{rows}\r\n", rows.len()).expect("a chunk");
    stream.shutdown(Shutdown::Write).expect("it ends without its last chunk");
    let answer = read(&mut stream);
    assert_eq!((answer.status, answer.header("x-clickhouse-exception-code")), (500, "33"));
    assert_eq!(server.sql("SELECT count() FROM t"), "0");
}

#[test]
fn sessions_keep_temporary_tables() {
    let server = Server::start();
    let run = |session: &str, sql: &str| server.post(&format!("/?session_id={session}"), sql.as_bytes());
    assert_eq!(run("a", "CREATE TEMPORARY TABLE tmp (a Int8)").status, 200);
    assert_eq!(run("a", "INSERT INTO tmp VALUES (1), (2)").status, 200);
    assert_eq!(run("a", "SET max_block_size = 5").status, 200);
    assert_eq!(run("a&max_block_size=6", "SELECT getSetting('max_block_size'), sum(a) FROM tmp").text(), "6\t3\n");
    assert_eq!(run("a", "SELECT getSetting('max_block_size')").text(), "5\n");
    assert_eq!(run("b", "SELECT * FROM tmp").header("x-clickhouse-exception-code"), "60");
    assert_eq!(run("c&session_check=1", "SELECT 1").header("x-clickhouse-exception-code"), "372");
    let get = server.request("GET", &format!("{}&session_id=a", query("DROP TABLE tmp")), &[], b"");
    assert_eq!(get.header("x-clickhouse-exception-code"), "164");
}

#[test]
fn concurrent_inserts_and_queries() {
    let server = Server::start();
    table(&server);
    let target = query("INSERT INTO t FORMAT TSV");
    std::thread::scope(|scope| {
        for worker in 0..16u64 {
            let (server, target) = (&server, &target);
            scope.spawn(move || {
                for round in 0..10u64 {
                    let rows: String =
                        (0..1000).map(|row| format!("{}\tx\n", (worker * 10 + round) * 1000 + row)).collect();
                    assert_eq!(server.post(target, rows.as_bytes()).status, 200);
                    assert_eq!(server.post("/", format!("SELECT {round}").as_bytes()).text(), format!("{round}\n"));
                }
            });
        }
    });
    assert_eq!(server.sql("SELECT count(), uniqExact(a), sum(a) FROM t"), "160000\t160000\t12799920000");
}

#[test]
fn a_large_insert_and_a_large_result_are_not_held() {
    let server = Server::start();
    server.sql("CREATE TABLE big (a UInt64, s String) ENGINE = Null");
    let before = server.peak_memory();
    let rows: String = (0..10_000).map(|row| format!("{row}\t{}\n", "x".repeat(100))).collect();
    let part = rows.clone().into_bytes();
    let parts = 500;
    let data = std::iter::repeat_n(part.clone(), parts)
        .map(std::io::Cursor::new)
        .fold(Box::new(std::io::empty()) as Box<dyn Read + Send>, |all, next| Box::new(all.chain(next)));
    let insert = "INSERT INTO big SETTINGS max_insert_block_size = 65536, min_insert_block_size_bytes = 1 FORMAT TSV";
    server.client.insert(insert, data).expect("the insert");
    let sent = (part.len() * parts) as u64;
    assert!(sent > 500_000_000);
    let mut lines = 0u64;
    for line in server.client.lines("SELECT number, repeat('x', 100) FROM numbers(5000000)").expect("the query") {
        line.expect("a line");
        lines += 1;
    }
    assert_eq!(lines, 5_000_000);
    let grown = server.peak_memory() - before;
    assert!(grown < sent / 2, "{grown} bytes for {sent} sent");
}

#[test]
fn acknowledged_rows_survive_a_kill() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::on(dir.path(), &[]);
    table(&server);
    for row in 0..20 {
        assert_eq!(server.post(&query("INSERT INTO t FORMAT TSV"), format!("{row}\tx\n").as_bytes()).status, 200);
    }
    server.kill();
    let server = Server::on(dir.path(), &[]);
    assert_eq!(server.sql("SELECT count(), sum(a) FROM t"), "20\t190");
    assert_eq!(server.post(&query("INSERT INTO t FORMAT TSV"), b"100\tx\n").status, 200);
    assert_eq!(server.dir(), dir.path());
    assert_eq!(server.terminate(), Some(0));
    let server = Server::on(dir.path(), &[]);
    assert_eq!(server.sql("SELECT count() FROM t"), "21");
}

#[test]
fn a_startup_file_runs_first_and_its_error_is_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("arm.sql");
    std::fs::write(&file, "-- first\nCREATE TABLE s (a String) ENGINE = Memory;\nINSERT INTO s VALUES ('a;b');\n")
        .expect("a file");
    let config = dir.path().join("more.xml");
    std::fs::write(&config, "<clickhouse><macros><arm>x</arm></macros></clickhouse>").expect("a file");
    let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let server = Server::with(&["--startup", &path(&file), "--config", &path(&config)]);
    assert_eq!(server.sql("SELECT a, getMacro('arm') FROM s"), "a;b\tx");
    std::fs::write(&file, "SELECT 1; SELEKT 2;").expect("a file");
    let error = Server::refused(&["--startup", &path(&file)]);
    assert!(
        error.contains("clickhouse_startup") && error.contains("statement 2") && error.contains("Code: 62"),
        "{error}"
    );
}
