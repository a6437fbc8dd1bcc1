//! The topic filled on a real broker: exactly the corpus, kept, extended, or filled anew.

mod kafka;

use std::path::Path;

use kafka::{Node, Started};
use weir_harness::workload::encode::Encoder;
use weir_harness::workload::producer::{Fill, FillError, Filled, Progress, Step};
use weir_harness::workload::verify::Verified;
use weir_harness::workload::{Corpus, IngestSpec};
use weir_model::error::Coded;

const TOPIC: &str = "sensor-batches";

fn encoder() -> Encoder {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workload/ingest");
    Encoder::new(&Corpus::new(&IngestSpec::load(&folder).expect("the committed workload")))
}

fn fill(encoder: &Encoder, batches: u64) -> Fill<'_> {
    Fill { encoder, topic: TOPIC, compression: "none", schema_id: 7, batches, partitions: 3, threads: 2 }
}

fn prefill(broker: &Started, fill: &Fill<'_>) -> Filled {
    fill.prefill(broker.admin(), &mut |_| true).expect("it is filled")
}

fn verify(broker: &Started, fill: &Fill<'_>) -> Verified {
    fill.verify(broker.admin(), &mut |_| true).expect("it is read")
}

#[test]
fn a_topic_is_kept_extended_or_filled_anew() {
    let (node, encoder) = (Node::new(), encoder());
    let broker = node.start();
    assert_eq!(verify(&broker, &fill(&encoder, 1_000)), Verified::Missing);
    broker.admin().create_topic(TOPIC, 3, &[]).unwrap();
    assert_eq!(verify(&broker, &fill(&encoder, 1_000)), Verified::Empty);

    let first = prefill(&broker, &fill(&encoder, 1_000));
    assert_eq!((first.reused, first.produced), (0, 1_000));
    assert_eq!(first.send_ts_us.end - first.send_ts_us.start, 1_000);
    let counts = broker.admin().watermarks(TOPIC).unwrap();
    assert_eq!(counts.iter().map(|w| w.high).collect::<Vec<_>>(), [334, 333, 333]);
    let exact = Verified::Exact { send_ts_us: first.send_ts_us.clone() };
    assert_eq!(verify(&broker, &fill(&encoder, 1_000)), exact);

    let again = prefill(&broker, &fill(&encoder, 1_000));
    assert_eq!(again, Filled { reused: 1_000, produced: 0, ..first.clone() });

    let more = prefill(&broker, &fill(&encoder, 1_500));
    assert_eq!((more.reused, more.produced), (1_000, 500));
    assert_eq!(more.send_ts_us, first.send_ts_us.start..first.send_ts_us.start + 1_500);

    let found = verify(&broker, &fill(&encoder, 100));
    assert_eq!(found.to_string(), "partition 0 offset 34: it has 500 messages, the corpus 34");
    let fewer = prefill(&broker, &fill(&encoder, 100));
    assert_eq!((fewer.reused, fewer.produced), (0, 100));

    let wider = prefill(&broker, &Fill { partitions: 5, threads: 9, ..fill(&encoder, 101) });
    assert_eq!((wider.reused, wider.produced), (0, 101));
    assert_eq!(broker.admin().partitions(TOPIC).unwrap(), Some(5));

    let other = prefill(&broker, &Fill { partitions: 5, schema_id: 8, ..fill(&encoder, 101) });
    assert_eq!((other.reused, other.produced), (0, 101));
    broker.terminate();
}

#[test]
fn a_message_that_is_not_the_corpus_is_found_where_it_is() {
    let (node, encoder) = (Node::new(), encoder());
    let broker = node.start();
    let start = prefill(&broker, &fill(&encoder, 30)).send_ts_us.start;
    let message = |id: u64, send_ts_us: i64| {
        let mut bytes = Vec::new();
        encoder.encode(id, send_ts_us, 7, &mut bytes);
        bytes
    };
    // Batch 31 belongs to partition 1, where it is offset 10.
    let mut flipped = message(31, start + 31);
    *flipped.last_mut().unwrap() ^= 1;
    for (wrong, why) in [
        (flipped, "its bytes are not those of batch 31"),
        (message(34, start + 34), "its send_ts"),
        (message(31, 0), "its send_ts"),
        (b"not Avro".to_vec(), "it is no message of the workload"),
    ] {
        broker.produce(TOPIC, 1, &wrong);
        let Verified::Different { partition, offset, why: said } = verify(&broker, &fill(&encoder, 33)) else {
            panic!("not found: {why}");
        };
        assert_eq!((partition, offset), (1, 10), "{said}");
        assert!(said.starts_with(why), "{said}");
        let anew = prefill(&broker, &fill(&encoder, 30));
        assert_eq!((anew.reused, anew.produced), (0, 30));
        // The next wrong message goes on from these times.
        broker.admin().delete_topic(TOPIC).unwrap();
        broker.admin().create_topic(TOPIC, 3, &[]).unwrap();
        for id in 0..30 {
            broker.produce(TOPIC, id as i32 % 3, &message(id, start + id as i64));
        }
    }
    broker.terminate();
}

#[test]
fn an_interrupted_filling_is_gone_on_with() {
    let (node, encoder) = (Node::new(), encoder());
    let broker = node.start();
    let fill = fill(&encoder, 100_000);
    let mut stop = |now: Progress| now.step == Step::Verify || now.done == 0;
    let error = fill.prefill(broker.admin(), &mut stop).unwrap_err();
    assert!(matches!(error, FillError::Interrupted { .. }), "{error}");
    assert_eq!(error.code(), "interrupted");
    let there = broker.admin().end_offset(TOPIC).unwrap();
    assert!(there > 0 && there < 100_000, "{there}");

    let mut reports = Vec::new();
    let filled = fill
        .prefill(broker.admin(), &mut |now| {
            reports.push(now);
            true
        })
        .unwrap();
    assert_eq!((filled.reused, filled.produced), (there, 100_000 - there));
    let ends: Vec<Progress> = reports.into_iter().filter(|now| now.done == now.of).collect();
    let ended = |step, of| ends.contains(&Progress { step, done: of, of });
    assert!(ended(Step::Verify, there) && ended(Step::Produce, 100_000 - there) && ended(Step::Verify, 100_000));
    broker.terminate();
}
