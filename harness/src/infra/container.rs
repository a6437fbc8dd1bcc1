//! The infrastructure as containers: what each product's image is told.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use weir_model::environment::ServiceKind;

use super::clickhouse::Client;
use super::embedded::broker::{self, Listeners};
use super::embedded::clickhouse::LaunchError;
use crate::runtime::docker::{DockerError, Engine, Image, RUN_DIR};
use crate::runtime::{Caps, Contained, Running, Service};

/// Where the broker listens for arms, in the sitting's network.
pub const BROKER_PORT: u16 = 9092;
/// Where a schema registry listens.
pub const REGISTRY_PORT: u16 = 8081;
/// Where ClickHouse's HTTP interface listens.
pub const CLICKHOUSE_PORT: u16 = 8123;
/// Folder of the data that outlives a container.
const DATA: &str = "/weir/data";
/// The broker's jars, in the image.
const JARS: &str = "/opt/kafka/libs/*";
/// The ClickHouse library, in the suite's image.
pub const LIBCHDB: &str = "/usr/local/lib/libchdb.so";
/// Folder of the suite's binaries, in an image.
pub const BINS: &str = "/usr/local/bin";
/// How long a part of the infrastructure is given after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);
/// Largest heap of a broker on a JVM: beyond it page cache serves better.
const HEAP: u64 = 1 << 30;

/// Where a part of the infrastructure runs, from what, under which bounds.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// The Docker host.
    pub host: &'a str,
    /// The image's name.
    pub reference: &'a str,
    /// The image.
    pub image: &'a Image,
    /// Bounds.
    pub caps: Option<Caps>,
    /// Folder of this sitting for its log.
    pub run: &'a Path,
    /// Where it is published for the harness.
    pub published: SocketAddr,
    /// Where its second port is, of a part that has two.
    pub second: SocketAddr,
}

impl Place<'_> {
    fn service(&self, name: &str, command: Vec<String>, port: u16) -> Service {
        Service {
            name: name.to_owned(),
            command,
            env: BTreeMap::new(),
            dir: self.run.to_path_buf(),
            log: self.run.join(format!("{name}.log")),
            caps: self.caps,
            grace: GRACE,
            contained: Some(Contained {
                host: self.host.to_owned(),
                alias: name.to_owned(),
                reference: self.reference.to_owned(),
                image: self.image.id,
                dir: None,
                volumes: vec![],
                publish: vec![(port, self.published)],
                files: vec![],
            }),
        }
    }
}

/// A free port of this host for a part that runs on it, on loopback; for one that runs elsewhere a port from a range
/// that is usually free, on every interface.
///
/// # Errors
/// When this host has no free port.
pub fn published(engine: &Engine, nth: u16) -> Result<SocketAddr, DockerError> {
    if engine.is_local() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        return listener.and_then(|listener| listener.local_addr()).map_err(DockerError::io("find a free port"));
    }
    let drawn = u16::try_from(uuid::Uuid::now_v7().as_u128() % 1000).unwrap_or(0);
    Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 20_000 + drawn * 4 + nth))
}

/// The broker, with its data in `volume`; `public` is the host name under which its published port is reached.
#[must_use]
pub fn broker(kind: ServiceKind, place: &Place<'_>, public: &str, volume: &str) -> Service {
    match kind {
        ServiceKind::Redpanda => redpanda(place, public, volume),
        _ => kafka(place, public, volume),
    }
}

fn kafka(place: &Place<'_>, public: &str, volume: &str) -> Service {
    let heap = place.caps.map_or(HEAP, |caps| HEAP.min(caps.memory / 3));
    let (logging, config) = (format!("{RUN_DIR}/kafka-log4j2.properties"), format!("{RUN_DIR}/kafka.properties"));
    let command = broker::node_command("java", heap, &logging, JARS, &config);
    let outside = place.published.port();
    let mut service = place.service("broker", command, outside);
    if let Some(contained) = &mut service.contained {
        contained.volumes.push((volume.to_owned(), DATA.to_owned()));
        contained.files = kafka_files(public, outside);
    }
    service
}

/// Configuration of the node. Arms are told its name in their network, the harness the published port.
fn kafka_files(public: &str, outside: u16) -> Vec<(String, Vec<u8>)> {
    let every = |port: u16| format!("{}:{port}", Ipv4Addr::UNSPECIFIED);
    let controller = format!("{}:{}", Ipv4Addr::LOCALHOST, BROKER_PORT + 1);
    let listeners = Listeners {
        bound: vec![("INSIDE", every(BROKER_PORT)), ("OUTSIDE", every(outside)), ("CONTROLLER", controller.clone())],
        advertised: vec![("INSIDE", format!("broker:{BROKER_PORT}")), ("OUTSIDE", format!("{public}:{outside}"))],
        controller,
    };
    let config = broker::properties(Path::new(DATA), &listeners);
    vec![
        (format!("{RUN_DIR}/kafka.properties"), config.into_bytes()),
        (format!("{RUN_DIR}/kafka-log4j2.properties"), broker::LOGGING.as_bytes().to_vec()),
    ]
}

/// Formats the volume of a broker that has to be told to, if it is not yet.
///
/// # Errors
/// When the image cannot be run or its tool fails.
pub fn format(kind: ServiceKind, engine: &Engine, image: &Image, volume: &str) -> Result<(), DockerError> {
    if kind != ServiceKind::Kafka {
        return Ok(());
    }
    let script = format!(
        "test -f {DATA}/meta.properties || exec java -XX:TieredStopAtLevel=1 -cp '{JARS}' kafka.tools.StorageTool format \
         --cluster-id {} --config {RUN_DIR}/kafka.properties",
        broker::cluster_id()
    );
    let command = ["sh".to_owned(), "-c".to_owned(), script];
    let files = kafka_files("localhost", BROKER_PORT + 2);
    let said = engine.run_once(&image.id.to_string(), &command, &files, vec![format!("{volume}:{DATA}")])?;
    if said.code == 0 {
        return Ok(());
    }
    let what = format!("its data cannot be formatted: {}{}", said.out, said.err);
    Err(DockerError::Build { image: image.id.to_string(), what })
}

fn redpanda(place: &Place<'_>, public: &str, volume: &str) -> Service {
    let outside = place.published.port();
    let (cpus, memory) = place.caps.map_or((1.0, 1 << 30), |caps| (caps.cpus, caps.memory));
    let command = [
        "rpk".to_owned(),
        "redpanda".to_owned(),
        "start".to_owned(),
        format!("--node-id={}", broker::NODE_ID),
        // as many threads as whole CPUs; a tenth of its memory is left to the system's side of it
        format!("--smp={}", cpus.floor().max(1.0)),
        format!("--memory={}M", (memory / 10 * 9) >> 20),
        "--reserve-memory=0M".to_owned(),
        "--overprovisioned".to_owned(),
        format!("--kafka-addr=inside://0.0.0.0:{BROKER_PORT},outside://0.0.0.0:{outside}"),
        format!("--advertise-kafka-addr=inside://broker:{BROKER_PORT},outside://{public}:{outside}"),
        format!("--schema-registry-addr=0.0.0.0:{REGISTRY_PORT}"),
        "--rpc-addr=0.0.0.0:33145".to_owned(),
        "--advertise-rpc-addr=broker:33145".to_owned(),
    ];
    let mut service = place.service("broker", command.to_vec(), outside);
    if let Some(contained) = &mut service.contained {
        contained.volumes.push((volume.to_owned(), "/var/lib/redpanda/data".to_owned()));
        contained.publish.push((REGISTRY_PORT, place.second));
    }
    service
}

/// The command that prints a broker's version in its image.
#[must_use]
pub fn version_command(kind: ServiceKind) -> Vec<String> {
    let words: &[&str] = match kind {
        ServiceKind::Redpanda => &["redpanda", "--version"],
        _ => &["java", "-cp", JARS, "kafka.Kafka", "--version"],
    };
    words.iter().map(ToString::to_string).collect()
}

/// The first thing in a text that looks like a version: numbers with points between them.
#[must_use]
pub fn version_in(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    let is_version = |word: &&str| {
        let parts: Vec<&str> = word.split('.').collect();
        parts.len() > 1 && parts[..2].iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    words.map(|word| word.trim_start_matches('v')).find(is_version).map(str::to_owned)
}

/// The suite's own registry, with its schemas in `volume`.
#[must_use]
pub fn registry(place: &Place<'_>, volume: &str) -> Service {
    let words = ["bench", "registry", "--listen", "0.0.0.0:8081", "--state", "/weir/data/registry.json"];
    let mut service = place.service("registry", words.map(str::to_owned).to_vec(), REGISTRY_PORT);
    if let Some(contained) = &mut service.contained {
        contained.volumes.push((volume.to_owned(), DATA.to_owned()));
    }
    service
}

/// ClickHouse, with an empty data directory that goes with its container. Its own accounting of memory ends a tenth
/// below its bound.
#[must_use]
pub fn clickhouse(kind: ServiceKind, place: &Place<'_>) -> Service {
    let memory = place.caps.map(|caps| caps.memory / 10 * 9);
    if kind == ServiceKind::Chdb {
        let mut command: Vec<String> =
            ["bench", "clickhouse", "--library", LIBCHDB, "--data"].map(str::to_owned).to_vec();
        command.extend([format!("{RUN_DIR}/data"), "--listen".into(), format!("0.0.0.0:{CLICKHOUSE_PORT}")]);
        command.extend(memory.into_iter().flat_map(|bytes| ["--max-server-memory".into(), bytes.to_string()]));
        return place.service("clickhouse", command, CLICKHOUSE_PORT);
    }
    let mut service = place.service("clickhouse", vec![], CLICKHOUSE_PORT);
    service.env.insert("CLICKHOUSE_SKIP_USER_SETUP".into(), "1".into());
    if let (Some(contained), Some(bytes)) = (&mut service.contained, memory) {
        let config = format!("<clickhouse><max_server_memory_usage>{bytes}</max_server_memory_usage></clickhouse>\n");
        contained.files.push(("/etc/clickhouse-server/config.d/weir.xml".into(), config.into_bytes()));
    }
    service
}

/// Waits until ClickHouse answers at `address`.
///
/// # Errors
/// When it ends first or takes longer than `limit`.
pub fn clickhouse_ready(address: &str, running: &mut dyn Running, limit: Duration) -> Result<Client, LaunchError> {
    let client = Client::new(&format!("http://{address}"));
    let deadline = Instant::now() + limit;
    loop {
        if client.ping() {
            return Ok(client);
        }
        let log = running.log().to_owned();
        if let Some(exit) = running.exited() {
            return Err(LaunchError::Ended { exit, log });
        }
        if Instant::now() >= deadline {
            return Err(LaunchError::Late { limit, log });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        Image { id: weir_model::digest::Digest::of("x"), labels: [].into() }
    }

    fn place(image: &Image) -> Place<'_> {
        Place {
            host: "",
            reference: "image",
            image,
            caps: Some(Caps { cpus: 8.0, memory: 8 << 30 }),
            run: Path::new("/run"),
            published: ([127, 0, 0, 1], 40_000).into(),
            second: ([127, 0, 0, 1], 40_001).into(),
        }
    }

    #[test]
    fn each_broker_tells_arms_its_name_and_the_harness_the_published_port() {
        let image = image();
        let place = place(&image);
        let kafka = broker(ServiceKind::Kafka, &place, "127.0.0.1", "v");
        let contained = kafka.contained.expect("contained");
        let config = String::from_utf8(contained.files[0].1.clone()).expect("text");
        assert!(config.contains("advertised.listeners=INSIDE://broker:9092,OUTSIDE://127.0.0.1:40000\n"), "{config}");
        assert!(
            config.contains("listeners=INSIDE://0.0.0.0:9092,OUTSIDE://0.0.0.0:40000,CONTROLLER://127.0.0.1:9093\n")
        );
        assert!(config.contains("log.dirs=/weir/data\n"));
        assert_eq!(contained.publish, [(40_000, place.published)]);
        let redpanda = broker(ServiceKind::Redpanda, &place, "far", "v");
        let told = "--advertise-kafka-addr=inside://broker:9092,outside://far:40000".to_owned();
        assert!(redpanda.command.contains(&told), "{:?}", redpanda.command);
        assert!(redpanda.command.contains(&"--smp=8".to_owned()));
        assert_eq!(redpanda.contained.expect("contained").volumes[0].1, "/var/lib/redpanda/data");
    }

    #[test]
    fn a_server_is_told_its_bound_and_the_library_too() {
        let image = image();
        let server = clickhouse(ServiceKind::Clickhouse, &place(&image));
        assert!(server.command.is_empty(), "its image's own");
        let files = server.contained.expect("contained").files;
        assert!(String::from_utf8_lossy(&files[0].1).contains(&(((8_u64 << 30) / 10) * 9).to_string()));
        let library = clickhouse(ServiceKind::Chdb, &place(&image));
        assert!(library.command.contains(&LIBCHDB.to_owned()));
    }

    #[test]
    fn versions_are_found_in_what_products_print() {
        let cases = [
            ("4.4.0 (Commit:abc123)", Some("4.4.0")),
            ("v26.1.13 - 0f00ba", Some("26.1.13")),
            ("Redpanda: 25.1, built", Some("25.1")),
            ("no version here.", None),
        ];
        for (text, version) in cases {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
    }
}
