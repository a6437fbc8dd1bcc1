//! Made-up records for tests.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;
use weir_model::digest::Digest;
use weir_model::environment::HostFacts;
use weir_model::flag::Flag;
use weir_model::id::{
    Approach, Class, Delivery, Mode, ProfileId, Role, RunId, SittingId, Trigger, WireFormat, WorkloadId,
};
use weir_model::metric::{Latency, LatencyOf, Metric, Metrics};
use weir_model::record::{
    AppliedCaps, EntrantFacts, EnvFacts, Expected, GateFacts, Guarantees, InfraFacts, Knob, Measurement, ProtocolFacts,
    Reading, Retraction, ServiceFacts, Verdict, Window, Windows,
};
use weir_model::status::Status;

fn uuid(number: u64) -> Uuid {
    Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0000 | u128::from(number))
}

pub(crate) fn run(number: u64) -> RunId {
    uuid(number).try_into().unwrap()
}

pub(crate) fn sitting(number: u64) -> SittingId {
    uuid(number << 32).try_into().unwrap()
}

fn env() -> EnvFacts {
    let digest = Digest::of("environment");
    let profile: ProfileId = "embedded".parse().unwrap();
    EnvFacts {
        id: profile.on(&digest),
        profile,
        class: Class::Fixture,
        digest,
        envelope_scale: 0.25,
        host: HostFacts {
            cpu: "Example CPU".into(),
            cores: 2,
            memory: 24 << 30,
            arch: "x86_64".into(),
            os: "Example Linux".into(),
            kernel: "6.1".into(),
            governor: None,
            smt: None,
            cgroup: "v2".into(),
            virtualisation: None,
            swap: 0,
            boot_id: "x".into(),
        },
        envelope: vec![AppliedCaps {
            name: "worker".into(),
            role: Role::DataPlane,
            cpus: 1.0,
            memory: 4 << 30,
            swap: 0,
            read_back: true,
        }],
    }
}

fn infra() -> InfraFacts {
    let service = |kind: &str, version: &str| ServiceFacts {
        kind: kind.into(),
        version: version.into(),
        cpus: Some(1.0),
        memory: Some(1 << 30),
    };
    InfraFacts {
        partitions: 8,
        broker: service("kafka", "4.4.0"),
        clickhouse: service("clickhouse", "26.7.3"),
        registry: service("embedded", "1"),
        ceilings: BTreeMap::new(),
    }
}

/// A measured run.
pub(crate) fn measurement(number: u64) -> Measurement {
    Measurement {
        run_id: run(number),
        sitting: sitting(1),
        ts: "2026-12-01T10:00:00Z".parse().unwrap(),
        trigger: Trigger::Manual,
        rep: 1,
        reps: 3,
        order: 1,
        aa: false,
        workload: WorkloadId::IngestB,
        status: Status::Ok,
        entrant: EntrantFacts {
            id: "rill".parse().unwrap(),
            variant: "native".parse().unwrap(),
            version: "1.2.3".into(),
            artefact: Some(Digest::of("rill")),
            toolchain: None,
            commit: None,
        },
        approach: Approach::Realistic,
        wire_format: WireFormat::Native,
        guarantees: Guarantees { delivery: Delivery::AtLeastOnce, durability: "checkpoint".into(), interval_ms: 5000 },
        knobs: BTreeMap::from([("threads".into(), Knob::Int(4))]),
        binding: "The decoder uses the whole of its CPU cap.".into(),
        env: env(),
        protocol: ProtocolFacts {
            harness_version: 1,
            dataset_version: "d1-0123456789ab".into(),
            harness_commit: None,
            seed: 42,
            batches: 1000,
        },
        infra: infra(),
        reading: Reading::Drain {
            metrics: [(Metric::CpuUsPerRow, 0.5), (Metric::RowsPerS, 1e6)].into_iter().collect(),
        },
        windows: Some(Windows {
            full: Window {
                from: "2026-12-01T09:59:00Z".parse().unwrap(),
                to: "2026-12-01T09:59:30.5Z".parse().unwrap(),
                rows: 72_000,
            },
            plateau: None,
        }),
        series: None,
        gates: Some(GateFacts {
            rows: Expected { expected: 72_000, got: 72_000 },
            duplicates: 0,
            checked_batches: 1000,
        }),
        flags: vec![Flag::NoPlateau],
        note: String::new(),
    }
}

pub(crate) fn retraction(number: u64) -> Retraction {
    let of = measurement(number);
    Retraction {
        run_id: of.run_id,
        env: of.env.id,
        entrant: of.entrant.id,
        reason: "the cap was not applied".into(),
        superseded_by: None,
        ts: "2026-12-02T10:00:00Z".parse().unwrap(),
    }
}

pub(crate) fn verdict() -> Verdict {
    let of = measurement(1);
    Verdict {
        sitting: of.sitting,
        env: of.env.id,
        aa_spread: BTreeMap::from([(Metric::CpuUsPerRow, 0.013)]),
        smallest_visible: BTreeMap::new(),
        flags: vec![Flag::AaSpreadExceeded { spread: 0.5, declared: 0.05 }],
        ts: "2026-12-01T11:00:00Z".parse().unwrap(),
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), ".{0,12}", Just("\"\\\u{0}\n\r\u{2028}é€𝄞</script>".to_owned())]
}

fn flags() -> impl Strategy<Value = Vec<Flag>> {
    let flag = prop_oneof![
        Just(Flag::SmtOn),
        (0.0..1.0_f64).prop_map(|share| Flag::CpuThrottled { share: weir_model::units::nine_digits(share) }),
        any::<u64>().prop_map(|count| Flag::Duplicates { count }),
        text().prop_map(|reason| Flag::EnvelopeUnenforced { reason }),
    ];
    prop::collection::vec(flag, 0..4)
}

fn metrics() -> impl Strategy<Value = Metrics> {
    let value = prop_oneof![-1e12..1e12_f64, 0.0..1e-6_f64, Just(0.0), Just(f64::INFINITY)];
    prop::collection::vec((prop::sample::select(Metric::ALL), value), 1..8)
        .prop_map(|values| values.into_iter().chain([(Metric::PeakMb, 1.5)]).collect())
}

fn reading() -> impl Strategy<Value = Reading> {
    let sustained = |metrics| Reading::Sustained {
        offered_rows_per_s: 1e6,
        metrics,
        latency: Some(Latency {
            of: LatencyOf::Pipeline,
            p50_ms: 1.0,
            p90_ms: 2.0,
            p99_ms: 3.5,
            p999_ms: 4.0,
            max_ms: 5.25,
            hist: "HISTF".into(),
        }),
    };
    (metrics(), prop::sample::select(Mode::ALL)).prop_map(move |(metrics, mode)| match mode {
        Mode::Drain => Reading::Drain { metrics },
        Mode::Sustained => sustained(metrics),
    })
}

fn knobs() -> impl Strategy<Value = BTreeMap<String, Knob>> {
    let knob = prop_oneof![
        any::<bool>().prop_map(Knob::Bool),
        any::<i64>().prop_map(Knob::Int),
        (1..1000_i32).prop_map(|value| Knob::Float(f64::from(value) + 0.5)),
        text().prop_map(Knob::Text),
    ];
    prop::collection::btree_map("[a-z_]{1,6}", knob, 0..4)
}

/// Measured and failed runs with ids from `numbers`.
pub(crate) fn measurements(numbers: std::ops::Range<u64>) -> impl Strategy<Value = Measurement> {
    (numbers, reading(), knobs(), flags(), text(), any::<bool>(), any::<u64>()).prop_map(
        |(number, reading, knobs, flags, binding, failed, seed)| {
            let mut it = Measurement { reading, knobs, flags, binding, ..measurement(number) };
            it.protocol.seed = seed;
            if failed {
                it.status = Status::Failed;
                it.reading = Reading::Drain { metrics: Metrics::new() };
                (it.windows, it.gates) = (None, None);
                it.note = "it lost a row".into();
            }
            it
        },
    )
}
