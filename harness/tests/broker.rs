//! The embedded Kafka broker: started, restarted on other ports, killed, and administered.

mod kafka;

use kafka::{Node, message};
use weir_harness::infra::embedded::broker::EmbeddedBrokerError;
use weir_model::error::Coded;

#[test]
fn topics_survive_other_ports_and_a_kill() {
    let node = Node::new();
    let broker = node.start();
    let admin = broker.admin();
    assert_eq!(admin.partitions("t").unwrap(), None);
    assert_eq!(admin.watermarks("t").unwrap_err().code(), "topic_missing");
    admin.create_topic("t", 3, &[]).unwrap();
    assert_eq!(admin.partitions("t").unwrap(), Some(3));
    assert_eq!(admin.create_topic("t", 3, &[]).unwrap_err().code(), "broker_request_failed");
    for i in 0..7 {
        broker.produce("t", i % 3, &message(i));
    }
    let ends = |broker: &kafka::Started| -> Vec<u64> {
        broker.admin().watermarks("t").unwrap().iter().map(|w| w.high).collect()
    };
    assert_eq!(ends(&broker), [3, 2, 2]);
    let first = broker.bootstrap().to_owned();
    broker.terminate();

    let broker = node.start();
    assert_ne!(broker.bootstrap(), first);
    assert_eq!(ends(&broker), [3, 2, 2]);
    broker.produce("t", 1, &message(7));
    broker.kill();

    let broker = node.start();
    assert_eq!(ends(&broker), [3, 3, 2]);
    assert_eq!(broker.admin().end_offset("t").unwrap(), 8);
    assert_eq!(broker.consume("t", 3, 8), (0..8).map(message).collect::<std::collections::BTreeSet<_>>());

    broker.admin().delete_topic("t").unwrap();
    broker.admin().delete_topic("t").unwrap();
    assert_eq!(broker.admin().partitions("t").unwrap(), None);
    broker.admin().create_topic("t", 2, &[("compression.type", "lz4")]).unwrap();
    assert_eq!(ends(&broker), [0, 0]);
    broker.terminate();
}

#[test]
fn a_group_is_seen_from_its_first_member_to_its_end() {
    let node = Node::new();
    let broker = node.start();
    let admin = broker.admin();
    admin.create_topic("t", 2, &[]).unwrap();
    assert_eq!(admin.group("g").unwrap(), None);
    assert_eq!(admin.committed("g", "t").unwrap(), [None, None]);
    for i in 0..4 {
        broker.produce("t", i % 2, &message(i));
    }
    let member = broker.join("g", "t", 3);
    let state = admin.group("g").unwrap().unwrap();
    assert!(state.is_consuming(), "{state:?}");
    assert_eq!(state.members, 1);
    let committed = admin.committed("g", "t").unwrap();
    assert_eq!(committed.iter().map(|c| c.unwrap_or(0)).sum::<u64>(), 3, "{committed:?}");
    assert_eq!(admin.delete_group("g").unwrap_err().code(), "broker_request_failed");
    drop(member);
    assert!(!admin.group("g").unwrap().unwrap().is_consuming());
    admin.delete_group("g").unwrap();
    admin.delete_group("g").unwrap();
    assert_eq!(admin.group("g").unwrap(), None);
    broker.terminate();
}

#[test]
fn a_formatting_that_was_cut_off_starts_over() {
    let node = Node::new();
    std::fs::create_dir_all(node.data().join("__cluster_metadata-0")).unwrap();
    let formatting = node.data().with_extension("formatting");
    std::fs::create_dir_all(&formatting).unwrap();
    std::fs::write(formatting.join("meta.properties"), "version=").unwrap();
    let broker = node.start();
    broker.admin().create_topic("t", 1, &[]).unwrap();
    broker.terminate();
    assert!(!formatting.exists());
}

#[test]
fn a_broker_that_ends_shows_the_end_of_its_log() {
    let node = Node::new();
    let broker = node.start();
    broker.terminate();
    let identity = node.data().join("meta.properties");
    let another = std::fs::read_to_string(&identity).unwrap().replace("node.id=1", "node.id=2");
    std::fs::write(&identity, another).unwrap();
    let error = node.try_start(kafka::LIMIT).map(drop).unwrap_err();
    assert_eq!(error.code(), "broker_ended", "{error}");
    let EmbeddedBrokerError::Ended { log, tail, .. } = &error else { panic!("{error}") };
    assert!(tail.contains("node id 2"), "{tail}");
    assert!(error.to_string().contains(&log.display().to_string()), "{error}");
}
