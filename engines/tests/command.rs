//! The command: files and pipes in, lines out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn freshet(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshet"));
    command.current_dir(directory).args(arguments);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    freshet(directory, arguments).output().unwrap()
}

fn piped(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = freshet(Path::new("."), arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // With LIMIT the command leaves before it has read everything.
    match stdin.write_all(input) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).unwrap()
}

const FILTER: &str = "SELECT merchant, amount FROM events WHERE amount > 490";

fn events(rows: usize) -> String {
    (0..rows).map(|i| format!("{{\"merchant\":\"m{}\",\"amount\":{}}}\n", i % 100, i % 500)).collect()
}

#[test]
fn a_filter_over_a_file_and_over_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let text = events(50_000);
    std::fs::write(directory.path().join("events.ndjson"), &text).unwrap();
    let expected: String = text
        .lines()
        .filter(|l| serde_json::from_str::<Value>(l).unwrap()["amount"].as_i64().unwrap() > 490)
        .map(|l| format!("{l}\n"))
        .collect();
    for from in ["file://events.ndjson", "events.ndjson", "file://event?.nd*"] {
        assert_eq!(out(&run(directory.path(), &["--from", from, FILTER])), expected);
    }
    assert_eq!(out(&piped(&["--from", "-", FILTER], text.as_bytes())), expected);
    let absolute = format!("file://{}/events.ndjson", directory.path().display());
    assert_eq!(out(&run(Path::new("/"), &["--from", &absolute, FILTER])), expected);
}

#[test]
fn compressed_files_read_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let text = events(1000);
    let file = std::fs::File::create(directory.path().join("events.ndjson.gz")).unwrap();
    let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    gz.finish().unwrap();
    std::fs::write(directory.path().join("events.ndjson.zst"), zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
    let gz = out(&run(directory.path(), &["--from", "events.ndjson.gz", FILTER]));
    assert_eq!(gz.lines().count(), 18);
    assert_eq!(out(&run(directory.path(), &["--from", "events.ndjson.zst", FILTER])), gz);
    let both = out(&run(directory.path(), &["--from", "events.*", FILTER]));
    assert_eq!(both.lines().count(), 36);
}

#[test]
fn a_bad_record_is_named_by_line_field_and_text() {
    let directory = tempfile::tempdir().unwrap();
    let mut lines: Vec<String> = events(20_000).lines().map(str::to_owned).collect();
    lines[16_999] = r#"{"merchant":"m1","amount":}"#.into();
    lines[18_000] = r#"{"merchant":"m1","amount":"lots"}"#.into();
    std::fs::write(directory.path().join("events.ndjson"), lines.join("\n")).unwrap();
    let failed = run(directory.path(), &["--from", "events.ndjson", FILTER]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(
        err(&failed),
        "error[SOURCE_ERROR]: events.ndjson line 17000: not valid JSON: expected a value, at byte 27\n  \
         hint: correct the record, or count and leave it out with --bad-records skip\n"
    );
    let failed = run(directory.path(), &["--errors", "json", "--from", "events.ndjson", FILTER]);
    let error: Value = serde_json::from_str(&err(&failed)).unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["line"]), (&"SOURCE_ERROR".into(), &17_000.into()));
    lines[16_999].clear();
    std::fs::write(directory.path().join("events.ndjson"), lines.join("\n")).unwrap();
    let text = "events.ndjson line 18001: field amount: \"lots\" does not fit BIGINT";
    let columns = ["--columns", "amount BIGINT"];
    let failed = run(directory.path(), &[&columns[..], &["--from", "events.ndjson", FILTER]].concat());
    assert!(err(&failed).contains(text));
    let skipped =
        run(directory.path(), &[&columns[..], &["--bad-records", "skip", "--from", "events.ndjson", FILTER]].concat());
    assert_eq!(out(&skipped).lines().count(), 359);
    assert_eq!(String::from_utf8_lossy(&skipped.stderr), format!("skipped 1 of 19999 records; the first: {text}\n"));
}

#[test]
fn a_failing_expression_is_named_by_line() {
    let text = b"{\"v\":1}\n\n{\"v\":0}\n{\"v\":2}\n";
    let failed = piped(&["--from", "-", "SELECT 10 / v AS part FROM s"], text);
    assert_eq!(err(&failed).lines().next().unwrap(), "error[DIVISION_BY_ZERO]: stdin line 3: part: division by zero");
    let kept = piped(&["--from", "-", "--bad-records", "skip", "SELECT 10 / v AS part FROM s"], text);
    assert_eq!(out(&kept), "{\"part\":10}\n{\"part\":5}\n");
}

#[test]
fn values_are_written_exactly() {
    let text = "\u{feff}{\"s\":\"q\\\"\\u0001\\u00e9\\\\\",\"i\":-9223372036854775808,\"d\":0.1,\"b\":true,\"t\":\"2026-06-01T12:30:00.250+02:00\",\"l\":[\"a\",null]}\r\n \t\r\n{\"d\":1e300,\"i\":null}";
    let json = out(&piped(&["--from", "-", "SELECT s, i, d, b, t, l FROM x"], text.as_bytes()));
    assert_eq!(
        json,
        "{\"s\":\"q\\\"\\u0001é\\\\\",\"i\":-9223372036854775808,\"d\":0.1,\"b\":true,\"t\":\"2026-06-01 10:30:00.25\",\"l\":[\"a\",null]}\n\
         {\"s\":null,\"i\":null,\"d\":1e300,\"b\":null,\"t\":null,\"l\":null}\n"
    );
    let csv = out(&piped(&["--from", "-", "--format", "csv", "SELECT s, i, t, l FROM x"], text.as_bytes()));
    assert_eq!(
        csv,
        "s,i,t,l\n\"q\"\"\u{1}é\\\",-9223372036854775808,2026-06-01 10:30:00.25,\"[\"\"a\"\",null]\"\n,,,\n"
    );
}

#[test]
fn nothing_in_nothing_out() {
    assert_eq!(out(&piped(&["--from", "-", FILTER], b"")), "");
    assert_eq!(out(&piped(&["--from", "-", FILTER], b"\n \n")), "");
    assert!(err(&piped(&["--from", "-", "SELEC"], b"")).contains("SYNTAX_ERROR"));
    assert_eq!(out(&piped(&["--from", "-", "--to", "null", FILTER], events(1000).as_bytes())), "");
    assert_eq!(
        out(&piped(&["--from", "-", "SELECT amount FROM x LIMIT 3"], events(100_000).as_bytes())).lines().count(),
        3
    );
}

#[test]
fn refusals_end_with_code_two() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("events.ndjson"), events(3)).unwrap();
    for (arguments, code) in [
        (["--from", "events.ndjson", "SELECT merchnt FROM events"], "UNKNOWN_NAME"),
        (["--from", "ftp://host/x", FILTER], "USAGE"),
        (["--from", "kafka:///x", FILTER], "USAGE"),
    ] {
        let refused = run(directory.path(), &arguments);
        assert_eq!(refused.status.code(), Some(2));
        assert!(err(&refused).contains(code), "{}", err(&refused));
    }
    let missing = run(directory.path(), &["--from", "none.ndjson", FILTER]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).starts_with("error[SOURCE_ERROR]: none.ndjson cannot be opened"));
}

#[test]
fn a_reader_that_leaves_early_ends_the_run_quietly() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("events.ndjson"), events(200_000)).unwrap();
    let mut child = freshet(directory.path(), &["--from", "events.ndjson", "SELECT * FROM events"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn the_version_and_the_plan_are_shown() {
    assert!(out(&run(Path::new("."), &["--version"])).starts_with("freshet "));
    let plan = out(&piped(&["--from", "-", "--explain", FILTER], events(10).as_bytes()));
    assert!(plan.contains("\n  amount Int64\n  merchant Utf8\n"), "{plan}");
}

#[test]
fn a_signal_ends_the_run_once_what_has_come_is_written() {
    let mut child = freshet(Path::new("."), &["--from", "-", "SELECT amount FROM x"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than types are inferred from, and little enough for both pipes to hold.
    let text = events(3_000);
    stdin.write_all(text.as_bytes()).unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = String::new();
    for _ in 0..3_000 {
        std::io::BufRead::read_line(&mut stdout, &mut lines).unwrap();
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!((status.code(), lines.lines().count()), (Some(0), 3_000));
    drop(stdin);
}

#[test]
fn a_monstrous_query_is_refused() {
    let terms = |count: usize| vec!["amount"; count].join("+");
    for (sql, code) in [
        (format!("SELECT {} AS x FROM s", terms(9_000)), "NOT_SUPPORTED"),
        (format!("SELECT {} AS x FROM s", terms(12_000)), "NOT_SUPPORTED"),
        (format!("SELECT {}1{} AS x FROM s", "(".repeat(5_000), ")".repeat(5_000)), "SYNTAX_ERROR"),
        (format!("SELECT {} amount AS x FROM s", "- ".repeat(4_000)), "SYNTAX_ERROR"),
    ] {
        let refused = piped(&["--from", "-", &sql], events(5).as_bytes());
        assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
        assert!(err(&refused).contains(code), "{}", err(&refused));
    }
    let deep = format!("SELECT {} AS x FROM s", terms(400));
    assert_eq!(out(&piped(&["--from", "-", &deep], events(2).as_bytes())), "{\"x\":0}\n{\"x\":400}\n");
}

#[test]
fn an_input_without_any_record_is_empty_or_an_error() {
    let directory = tempfile::tempdir().unwrap();
    for (content, code) in [("", 0), ("\n \n", 0), ("garbage\n", 1), ("\u{1}\u{2}", 1)] {
        std::fs::write(directory.path().join("events.ndjson"), content).unwrap();
        let output = run(directory.path(), &["--from", "file://events.ndjson", "SELECT merchant FROM events"]);
        assert_eq!(output.status.code(), Some(code), "{content:?}");
        assert!(output.stdout.is_empty(), "{content:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.contains("line 1"), code == 1, "{content:?}: {said}");
    }
}
