//! A child server of its own for every test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use weir_harness::infra::clickhouse::Client;
use weir_harness::setup::Home;

/// A running child. Dropped, it is killed.
pub(crate) struct Server {
    child: Child,
    dir: PathBuf,
    pub(crate) client: Client,
    pub(crate) address: String,
    _own: Option<tempfile::TempDir>,
}

/// An answer, its body decoded from chunks.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The body came to its end.
    pub(crate) whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("the body is text")
    }
}

/// The engine's library, which `bench setup` fetches.
pub(crate) fn library() -> PathBuf {
    let library = Home::find().expect("a cache directory").libchdb();
    assert!(library.exists(), "{} is missing: run `bench setup`", library.display());
    library
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Self {
        let own = tempfile::tempdir().expect("a temporary directory");
        let mut server = Self::on(own.path(), options);
        server._own = Some(own);
        server
    }

    /// Starts on the data left in `dir`.
    pub(crate) fn on(dir: &Path, options: &[&str]) -> Self {
        let address_file = dir.join("address");
        let mut child = Command::new(env!("CARGO_BIN_EXE_bench"))
            .arg("clickhouse")
            .arg("--library")
            .arg(library())
            .arg("--data")
            .arg(dir.join("data"))
            .arg("--address-file")
            .arg(&address_file)
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the child starts");
        // Its one line comes when it is ready; its end closes the pipe.
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("its output");
        if line.is_empty() {
            let mut error = String::new();
            child.stderr.take().expect("a pipe").read_to_string(&mut error).expect("its errors");
            child.wait().expect("it has ended");
            panic!("the child ended: {error}");
        }
        let address = std::fs::read_to_string(address_file).expect("the address").trim().to_owned();
        assert!(line.trim_end().ends_with(&address), "{line}");
        let client = Client::new(&format!("http://{address}"));
        Self { child, dir: dir.to_owned(), client, address, _own: None }
    }

    /// The child's error output when it does not start.
    pub(crate) fn refused(options: &[&str]) -> String {
        let own = tempfile::tempdir().expect("a temporary directory");
        let output = Command::new(env!("CARGO_BIN_EXE_bench"))
            .args(["clickhouse", "--library"])
            .arg(library())
            .arg("--data")
            .arg(own.path())
            .args(options)
            .output()
            .expect("the child runs");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.client.query_text(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).trim_end().to_owned()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("a connection")
    }

    /// Sends a whole request on a connection of its own.
    pub(crate) fn request(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        send(&mut stream, method, target, headers, body);
        read(&mut stream)
    }

    pub(crate) fn post(&self, target: &str, body: &[u8]) -> Answer {
        self.request("POST", target, &[], body)
    }

    /// Most memory the child has had resident, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the child lives");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
        line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has ended");
    }

    /// Ends it with SIGTERM and returns its exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("a signal");
        self.child.wait().expect("it ends").code()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn send(stream: &mut TcpStream, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).expect("the head is sent");
    stream.write_all(body).expect("the body is sent");
}

/// Reads one answer, by length or by chunks.
pub(crate) fn read(stream: &mut TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    let status = line().split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut headers = Vec::new();
    loop {
        let line = line();
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new(), whole: true };
    if answer.header("transfer-encoding") == "chunked" {
        loop {
            let mut size = String::new();
            if reader.read_line(&mut size).unwrap_or(0) == 0 {
                answer.whole = false;
                break;
            }
            let size = u64::from_str_radix(size.trim_end(), 16).expect("a chunk size");
            let before = answer.body.len();
            reader.by_ref().take(size).read_to_end(&mut answer.body).expect("a chunk");
            reader.read_line(&mut String::new()).expect("a chunk's end");
            if size == 0 {
                break;
            }
            assert_eq!(answer.body.len() - before, usize::try_from(size).expect("a size"));
        }
    } else {
        let length = answer.header("content-length").parse().expect("a length");
        reader.take(length).read_to_end(&mut answer.body).expect("the body");
    }
    answer
}
