//! Apache Kafka as one KRaft node: broker and controller in one process, bound to loopback.
//!
//! The data directory outlives the process and its ports: the node's id is constant, its only voter is itself, and
//! where it listens is written into its configuration anew before each start.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use weir_model::error::Coded;

use crate::infra::broker::{Admin, BrokerError};
use crate::runtime::{Caps, Running, Service};

/// The node's id, as its data directory remembers it.
pub(crate) const NODE_ID: i32 = 1;

/// File that makes a data directory a formatted one.
const FORMATTED: &str = "meta.properties";

/// How long one question to a starting broker is held open.
const QUESTION: Duration = Duration::from_millis(250);

/// Lines of the log that a failure repeats.
const LOG_TAIL: usize = 15;

/// Where the broker's parts are and what it may use.
#[derive(Debug, Clone)]
pub struct BrokerSettings {
    /// Directory of the broker's jars.
    pub libs: PathBuf,
    /// Data directory, kept between sittings; created when missing.
    pub data: PathBuf,
    /// Scratch of this sitting: receives configuration and log; created when missing.
    pub run: PathBuf,
    /// Java heap in bytes.
    pub heap: u64,
    /// Bounds on the process.
    pub caps: Option<Caps>,
}

/// A broker that is ready to be started.
#[derive(Debug, Clone)]
pub struct Broker {
    bootstrap: String,
    service: Service,
}

/// Why the broker does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedBrokerError {
    /// There is no Java runtime.
    #[error("no `java` in JAVA_HOME or PATH; the broker needs a Java runtime 17 or newer")]
    NoJava,
    /// The broker's jars are missing.
    #[error("no Kafka broker in {}", libs.display())]
    NoJars {
        /// Where they should be.
        libs: PathBuf,
    },
    /// A file or a port cannot be had.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, and on what.
        action: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The data directory cannot be formatted.
    #[error("cannot format the broker's data directory {}:\n{output}", data.display())]
    Format {
        /// The directory.
        data: PathBuf,
        /// What the formatting printed.
        output: String,
    },
    /// The process ended before it served.
    #[error("the broker ended before it served: it {exit}; the end of its log {}:\n{tail}", log.display())]
    Ended {
        /// How it ended.
        exit: String,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// The process runs and does not serve.
    #[error("the broker does not serve after {} s; the end of its log {}:\n{tail}", timeout.as_secs(), log.display())]
    NotReady {
        /// How long it was given.
        timeout: Duration,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// A client cannot be set up.
    #[error(transparent)]
    Client(#[from] BrokerError),
}

impl Coded for EmbeddedBrokerError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoJava => "java_missing",
            Self::NoJars { .. } => "broker_missing",
            Self::Io { .. } => "broker_io",
            Self::Format { .. } => "broker_not_formatted",
            Self::Ended { .. } => "broker_ended",
            Self::NotReady { .. } => "broker_not_ready",
            Self::Client(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoJava => Some("install one, for example `apt-get install openjdk-17-jre-headless`".to_owned()),
            Self::NoJars { .. } => Some("run `bench setup`".to_owned()),
            Self::Format { data, .. } => Some(format!("free the directory, or remove {}", data.display())),
            Self::Io { .. } | Self::Ended { .. } | Self::NotReady { .. } => None,
            Self::Client(error) => error.hint(),
        }
    }
}

impl Broker {
    /// Formats the data directory if it is not yet, chooses free ports and writes the configuration.
    ///
    /// # Errors
    /// [`EmbeddedBrokerError`] when a part is missing or a directory cannot be prepared.
    pub fn prepare(settings: &BrokerSettings) -> Result<Self, EmbeddedBrokerError> {
        let BrokerSettings { libs, data, run, heap, caps } = settings;
        if !has_jars(libs) {
            return Err(EmbeddedBrokerError::NoJars { libs: libs.clone() });
        }
        let java = find_java(std::env::var_os("JAVA_HOME"), std::env::var_os("PATH"))?;
        create_dir(run)?;
        let [client, controller] = free_ports()?;
        let classpath = format!("{}/*", libs.display());
        if !data.join(FORMATTED).is_file() {
            format(&java, &classpath, data, run)?;
        }
        let logging = run.join("kafka-log4j2.properties");
        write(&logging, LOGGING)?;
        let config = run.join("kafka.properties");
        write(&config, &properties(data, &Listeners::loopback(client, controller)))?;
        let shown = |path: &Path| path.display().to_string();
        let service = Service {
            name: "broker".to_owned(),
            command: node_command(&shown(&java), *heap, &shown(&logging), &classpath, &shown(&config)),
            env: BTreeMap::new(),
            dir: run.clone(),
            log: run.join("broker.log"),
            caps: *caps,
            grace: Duration::from_secs(20),
            contained: None,
        };
        Ok(Self { bootstrap: format!("{}:{client}", Ipv4Addr::LOCALHOST), service })
    }

    /// A broker that `service` is, with its clients' address.
    #[must_use]
    pub fn of(bootstrap: String, service: Service) -> Self {
        Self { bootstrap, service }
    }

    /// The process to start.
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Address for clients, `host:port`.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Waits until the started broker answers clients, counts itself among those that serve, and coordinates groups.
    ///
    /// # Errors
    /// [`EmbeddedBrokerError::Ended`] and [`EmbeddedBrokerError::NotReady`], with the end of the log.
    pub fn wait_ready(&self, running: &mut dyn Running, timeout: Duration) -> Result<Admin, EmbeddedBrokerError> {
        let admin = Admin::new(&self.bootstrap)?;
        let deadline = Instant::now() + timeout;
        loop {
            // The question is held open until the broker answers, so it paces this loop.
            if admin.brokers(QUESTION).is_ok_and(|brokers| brokers.contains(&NODE_ID)) {
                admin.open_groups(timeout)?;
                return Ok(admin);
            }
            let log = running.log().to_owned();
            if let Some(exit) = running.exited() {
                let tail = log_tail(&log);
                return Err(EmbeddedBrokerError::Ended { exit: exit.to_string(), log, tail });
            }
            if Instant::now() > deadline {
                let tail = log_tail(&log);
                return Err(EmbeddedBrokerError::NotReady { timeout, log, tail });
            }
        }
    }
}

/// The command of a node.
pub(crate) fn node_command(java: &str, heap: u64, logging: &str, classpath: &str, config: &str) -> Vec<String> {
    let heap_mib = (heap >> 20).max(64);
    vec![
        java.to_owned(),
        format!("-Xms{heap_mib}m"),
        format!("-Xmx{heap_mib}m"),
        "-XX:+UseG1GC".to_owned(),
        "-XX:MaxGCPauseMillis=20".to_owned(),
        "-XX:InitiatingHeapOccupancyPercent=35".to_owned(),
        "-XX:+ExplicitGCInvokesConcurrent".to_owned(),
        "-XX:+ExitOnOutOfMemoryError".to_owned(),
        "-Djava.awt.headless=true".to_owned(),
        format!("-Dlog4j2.configurationFile={logging}"),
        "-cp".to_owned(),
        classpath.to_owned(),
        "kafka.Kafka".to_owned(),
        config.to_owned(),
    ]
}

/// Where a node listens. `CONTROLLER` is among the listeners; the first one is how brokers would talk to each other.
#[derive(Debug, Clone)]
pub(crate) struct Listeners {
    /// Name and bound address of each.
    pub(crate) bound: Vec<(&'static str, String)>,
    /// Name of each for clients, and the address they are told.
    pub(crate) advertised: Vec<(&'static str, String)>,
    /// Address of the controller.
    pub(crate) controller: String,
}

impl Listeners {
    /// One for clients and one for the controller, both on loopback.
    fn loopback(client: u16, controller: u16) -> Self {
        let at = |port: u16| format!("{}:{port}", Ipv4Addr::LOCALHOST);
        Self {
            bound: vec![("PLAINTEXT", at(client)), ("CONTROLLER", at(controller))],
            advertised: vec![("PLAINTEXT", at(client))],
            controller: at(controller),
        }
    }
}

/// What the node is told. Partition counts of internal topics are those of one node with a handful of clients; nothing
/// is ever removed from a topic by age or size.
pub(crate) fn properties(data: &Path, at: &Listeners) -> String {
    let listed =
        |of: &[(&str, String)]| -> Vec<String> { of.iter().map(|(name, at)| format!("{name}://{at}")).collect() };
    let kinds: Vec<String> = at.bound.iter().map(|(name, _)| format!("{name}:PLAINTEXT")).collect();
    let (bound, advertised, kinds) = (listed(&at.bound).join(","), listed(&at.advertised).join(","), kinds.join(","));
    let (inter, controller) = (at.bound.first().map_or("PLAINTEXT", |(name, _)| name), &at.controller);
    format!(
        "process.roles=broker,controller\n\
         node.id={NODE_ID}\n\
         controller.quorum.voters={NODE_ID}@{controller}\n\
         listeners={bound}\n\
         advertised.listeners={advertised}\n\
         controller.listener.names=CONTROLLER\n\
         inter.broker.listener.name={inter}\n\
         listener.security.protocol.map={kinds}\n\
         log.dirs={}\n\
         auto.create.topics.enable=false\n\
         offsets.topic.num.partitions=1\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.num.partitions=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         log.retention.ms=-1\n\
         log.retention.bytes=-1\n\
         log.segment.delete.delay.ms=1000\n\
         log.cleaner.dedupe.buffer.size=16777216\n\
         log.cleaner.threads=1\n",
        property_value(data)
    )
}

/// A path as a value of a Java properties file.
fn property_value(path: &Path) -> String {
    path.display().to_string().replace('\\', "\\\\")
}

pub(crate) const LOGGING: &str = "\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
";

/// Formats beside the data directory and moves the result into place, so that a data directory is either formatted
/// whole or not at all.
fn format(java: &Path, classpath: &str, data: &Path, run: &Path) -> Result<(), EmbeddedBrokerError> {
    let fresh = data.with_extension("formatting");
    for unfinished in [&fresh, &data.to_owned()] {
        if unfinished.exists() {
            let action = || format!("remove the unfinished {}", unfinished.display());
            std::fs::remove_dir_all(unfinished).map_err(io_error(action))?;
        }
    }
    create_dir(&fresh)?;
    let config = run.join("kafka-format.properties");
    write(&config, &properties(&fresh, &Listeners::loopback(9092, 9093)))?;
    let output = Command::new(java)
        .args(["-XX:TieredStopAtLevel=1", "-cp", classpath, "kafka.tools.StorageTool", "format", "--cluster-id"])
        .arg(cluster_id())
        .arg("--config")
        .arg(&config)
        .output()
        .map_err(io_error(|| format!("start {}", java.display())))?;
    if !output.status.success() || !fresh.join(FORMATTED).is_file() {
        let text = [output.stdout, output.stderr].concat();
        return Err(EmbeddedBrokerError::Format {
            data: data.to_owned(),
            output: String::from_utf8_lossy(&text).trim().to_owned(),
        });
    }
    let action = || format!("move {} to {}", fresh.display(), data.display());
    std::fs::rename(&fresh, data).map_err(io_error(action))
}

/// A new cluster id: 16 bytes in the URL-safe base64 alphabet, unpadded.
pub(crate) fn cluster_id() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = uuid::Uuid::now_v7().as_u128();
    // 22 digits of 6 bits: the last holds the two bits that are left, in its upper end. The first digit of a UUIDv7
    // is never `-`, which the tool would take for an option.
    (0..22)
        .map(|i| {
            let shift = 122_i32 - 6 * i;
            let six = if shift >= 0 { bits >> shift } else { bits << -shift };
            char::from(ALPHABET[(six & 63) as usize])
        })
        .collect()
}

fn has_jars(libs: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(libs) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("kafka_") && name.ends_with(".jar")
    })
}

fn find_java(java_home: Option<OsString>, path: Option<OsString>) -> Result<PathBuf, EmbeddedBrokerError> {
    let home = java_home.filter(|h| !h.is_empty()).map(|h| Path::new(&h).join("bin"));
    let path = path.unwrap_or_default();
    let candidates = home.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join("java"));
    let found = candidates.into_iter().find(|java| java.is_file());
    found.and_then(|java| std::path::absolute(java).ok()).ok_or(EmbeddedBrokerError::NoJava)
}

/// Two ports that nobody listens on. Both are held until both are known, so they differ.
fn free_ports() -> Result<[u16; 2], EmbeddedBrokerError> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let ports = || {
        let (one, two) = (bind()?, bind()?);
        Ok([one.local_addr()?.port(), two.local_addr()?.port()])
    };
    ports().map_err(io_error(|| "find a free port".to_owned()))
}

fn create_dir(dir: &Path) -> Result<(), EmbeddedBrokerError> {
    std::fs::create_dir_all(dir).map_err(io_error(|| format!("create {}", dir.display())))
}

fn write(file: &Path, text: &str) -> Result<(), EmbeddedBrokerError> {
    std::fs::write(file, text).map_err(io_error(|| format!("write {}", file.display())))
}

fn io_error(action: impl FnOnce() -> String) -> impl FnOnce(io::Error) -> EmbeddedBrokerError {
    move |source| EmbeddedBrokerError::Io { action: action(), source }
}

fn log_tail(log: &Path) -> String {
    let Ok(bytes) = std::fs::read(log) else { return "(no log)".to_owned() };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_is_22_url_safe_digits() {
        let id = cluster_id();
        assert_eq!(id.len(), 22);
        assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{id}");
        assert!(!id.starts_with('-'), "{id}");
        // Two bits are left for the last digit.
        assert!(["A", "Q", "g", "w"].iter().any(|end| id.ends_with(end)), "{id}");
        assert_ne!(id, cluster_id());
    }

    #[test]
    fn missing_jars_name_the_command_that_fetches_them() {
        let dir = tempfile::tempdir().unwrap();
        let settings = BrokerSettings {
            libs: dir.path().join("libs"),
            data: dir.path().join("data"),
            run: dir.path().join("run"),
            heap: 1 << 28,
            caps: None,
        };
        let error = Broker::prepare(&settings).unwrap_err();
        assert_eq!(error.code(), "broker_missing");
        assert_eq!(error.hint().unwrap(), "run `bench setup`");
    }

    #[test]
    fn java_comes_from_java_home_before_path() {
        let dir = tempfile::tempdir().unwrap();
        let touch = |path: &str| {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            file
        };
        let home = touch("home/bin/java");
        let other = touch("other/java");
        let path = Some(OsString::from(other.parent().unwrap()));
        let java_home = Some(OsString::from(dir.path().join("home")));
        assert_eq!(find_java(java_home, path.clone()).unwrap(), home);
        assert_eq!(find_java(None, path).unwrap(), other);
        assert!(matches!(find_java(None, None), Err(EmbeddedBrokerError::NoJava)));
    }
}
