//! Ordinary clients: the `clickhouse` crate and clickhouse-connect.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clickhouse::Row;
use serde::{Deserialize, Serialize};
use weir_harness::cgroup::Hierarchy;
use weir_harness::infra::clickhouse::{Client, ClientError};
use weir_harness::infra::embedded::clickhouse::{Launch, LaunchError, service, wait_ready};
use weir_harness::runtime::process::ProcessRuntime;
use weir_harness::runtime::{Caps, Exit, Runtime};
use weir_harness::setup::Home;

use crate::server::{Server, library};

/// Longer than a start takes on a loaded host; reached only by a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// clickhouse-connect as it is on PyPI, with the wheels it needs.
const CONNECT: [&str; 2] = ["clickhouse-connect==1.12.0", "lz4==4.4.5"];

#[derive(Debug, Clone, PartialEq, Row, Serialize, Deserialize)]
struct Reading {
    id: u64,
    sensor: String,
    quality: Option<f64>,
    tags: Vec<String>,
    at: i64,
}

#[test]
fn the_clickhouse_crate_inserts_and_selects() {
    let server = Server::start();
    server.sql(
        "CREATE TABLE r (id UInt64, sensor LowCardinality(String), quality Nullable(Float64), \
         tags Array(LowCardinality(String)), at DateTime64(3)) ENGINE = MergeTree ORDER BY id",
    );
    let rows: Vec<Reading> = (0..20_000u64)
        .map(|id| Reading {
            id,
            sensor: format!("sensor-{}", id % 7),
            quality: (id % 3 != 0).then(|| id as f64 / 8.0),
            tags: (0..id % 4).map(|tag| format!("tag {tag} ✓")).collect(),
            at: 1_700_000_000_000 + i64::try_from(id).expect("small"),
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = clickhouse::Client::default().with_url(format!("http://{}", server.address));
        let mut insert = client.insert::<Reading>("r").await.expect("the insert starts");
        for row in &rows {
            insert.write(row).await.expect("a row");
        }
        insert.end().await.expect("the insert ends");
        let back: Vec<Reading> = client.query("SELECT ?fields FROM r ORDER BY id").fetch_all().await.expect("rows");
        assert!(back == rows, "the rows come back as they went");
        let one: u64 = client
            .query("SELECT count() FROM r WHERE sensor = ? AND id < ?")
            .bind("sensor-3")
            .bind(700)
            .with_setting("max_threads", "1")
            .fetch_one()
            .await
            .expect("a count");
        assert_eq!(one, 100);
        let named: u64 = client
            .query("SELECT count() FROM r WHERE id < {most:UInt64}")
            .param("most", 5)
            .fetch_one()
            .await
            .expect("a count");
        assert_eq!(named, 5);
        let error = client.query("SELECT * FROM nope").fetch_all::<u64>().await.expect_err("no such table");
        assert!(error.to_string().contains("UNKNOWN_TABLE"), "{error}");
        let late =
            client.query("SELECT throwIf(number = 3000000)::UInt8 FROM numbers(10000000)").fetch_all::<u8>().await;
        let error = late.expect_err("it fails on the way");
        assert!(error.to_string().contains("FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"), "{error}");
    });
}

#[test]
fn clickhouse_connect_works() {
    let server = Server::start();
    let home = Home::find().expect("a cache directory");
    let venv = home.root().join("clickhouse-connect-venv");
    let python = venv.join("bin/python");
    let run = |command: &mut Command, what: &str| {
        let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv), "`python3 -m venv` (install python3-venv)");
    }
    run(
        Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(CONNECT),
        "pip install",
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clickhouse_http/connect.py");
    let (host, port) = server.address.rsplit_once(':').expect("host:port");
    assert_eq!(run(Command::new(&python).arg(script).args([host, port]), "the script").trim_end(), "ok");
}

#[test]
fn the_harness_own_client() {
    let server = Server::start();
    let client = &server.client;
    assert!(client.ping());
    client.execute("CREATE TABLE c (a UInt64) ENGINE = MergeTree ORDER BY a").expect("a table");
    client.insert("INSERT INTO c FORMAT TSV", "1\n2\n3\n".as_bytes()).expect("an insert");
    let lines: Result<Vec<String>, ClientError> =
        client.lines("SELECT a FROM c ORDER BY a").expect("a query").collect();
    assert_eq!(lines.expect("lines"), ["1", "2", "3"]);
    let error = client.query_text("SELECT * FROM nope").expect_err("no such table");
    assert_eq!(error.exception_code(), Some(60));
    assert_eq!(
        client.clone().with_user("eve", "x").execute("SELECT 1").expect_err("refused").exception_code(),
        Some(516)
    );
    assert_eq!(
        client.clone().with_database("system").query_text("SELECT currentDatabase()").expect("text"),
        "system\n"
    );
    assert!(
        client
            .lines("SELECT throwIf(number = 3000000) FROM numbers(10000000)")
            .expect("it begins")
            .any(|line| line.is_err())
    );
    let nobody = Client::new("http://127.0.0.1:1");
    assert!(!nobody.ping());
    assert!(matches!(nobody.execute("SELECT 1"), Err(ClientError::Transport { .. })));
}

#[test]
fn the_harness_starts_and_stops_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_bench"));
    let hierarchy = Hierarchy::detect().expect("/proc is readable");
    let runtime = ProcessRuntime::with(bench.clone(), "clickhouse-launch", hierarchy);
    let mut launch = Launch {
        name: "clickhouse".to_owned(),
        program: bench,
        library: library(),
        data: dir.path().join("data"),
        run: dir.path().to_owned(),
        startup: None,
        config: None,
        users: Vec::new(),
        caps: Some(Caps { cpus: 1.0, memory: 2 << 30 }),
    };
    let mut running = runtime.start(&service(&launch)).expect("the child starts");
    let client = wait_ready(&launch, running.as_mut(), LIMIT).expect("it becomes ready");
    let cap = client.query_text("SELECT value FROM system.server_settings WHERE name = 'max_server_memory_usage'");
    assert_eq!(cap.expect("a setting").trim_end(), ((2u64 << 30) / 10 * 9).to_string());
    assert_eq!(running.stop(), Exit::Code(0));
    assert!(!client.ping());

    let script = dir.path().join("bad.sql");
    std::fs::write(&script, "SELEKT").expect("a file");
    launch.startup = Some(script);
    let mut running = runtime.start(&service(&launch)).expect("the child starts");
    let error = wait_ready(&launch, running.as_mut(), LIMIT).expect_err("it ends");
    assert!(matches!(error, LaunchError::Ended { exit: Exit::Code(1), .. }), "{error:?}");
    assert!(std::fs::read_to_string(running.log()).expect("its log").contains("Code: 62"));
}
