//! Made-up records for tests.

#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its part")]

use std::collections::BTreeMap;

use uuid::Uuid;
use weir_model::digest::Digest;
use weir_model::environment::HostFacts;
use weir_model::flag::Flag;
use weir_model::id::{Approach, Class, Delivery, ProfileId, Role, RunId, SittingId, Trigger, WireFormat, WorkloadId};
use weir_model::metric::{Measured, Metric, Metrics};
use weir_model::record::{
    AppliedCaps, EntrantFacts, EnvFacts, Expected, GateFacts, Guarantees, Head, InfraFacts, Knob, Measurement,
    ProtocolFacts, Reading, Retraction, ServiceFacts, Verdict, Window, Windows,
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
        image: None,
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
        series_digest: None,
        gates: Some(GateFacts {
            rows: Expected { expected: 72_000, got: 72_000 },
            duplicates: 0,
            checked_batches: 1000,
        }),
        flags: vec![Flag::NoPlateau],
        note: String::new(),
    }
}

/// A measured run with everything that a record can have.
pub(crate) fn full_measurement(number: u64) -> Measurement {
    let mut it = measurement(number);
    let metrics =
        Metric::ALL.iter().map(|metric| (*metric, Measured { value: 0.5, ci95: Some([0.4, 0.6]), n: Some(3) }));
    let mut all = Metrics::new();
    metrics.for_each(|(metric, measured)| all.set(metric, measured));
    it.reading = Reading::Drain { metrics: all };
    it.entrant.toolchain = Some("rustc 1".into());
    it.entrant.commit = Some("abc".into());
    it.infra.broker.image = Some(Digest::of("image"));
    it.protocol.harness_commit = Some("abc".into());
    it.env.host.governor = Some("performance".into());
    it.env.host.smt = Some(false);
    it.env.host.virtualisation = Some("kvm".into());
    it.infra.ceilings = BTreeMap::from([("native".into(), 1e6)]);
    let full = it.windows.as_ref().map(|windows| windows.full.clone());
    if let Some(windows) = &mut it.windows {
        windows.plateau = full;
    }
    it.series = Some("series/x.jsonl.zst".into());
    it.series_digest = Some(Digest::of("series"));
    it.flags = vec![Flag::SmtOn, Flag::CpuThrottled { share: 0.5 }, Flag::Virtualised { kind: "kvm".into() }];
    it
}

/// What a sitting could tell apart, with everything that a verdict can have.
pub(crate) fn full_verdict() -> Verdict {
    let of = measurement(1);
    let by_metric: BTreeMap<Metric, f64> = Metric::ALL.iter().map(|metric| (*metric, 0.01)).collect();
    Verdict {
        sitting: of.sitting,
        env: of.env.id,
        aa_spread: by_metric.clone(),
        smallest_visible: by_metric,
        flags: vec![Flag::AaSpreadExceeded { spread: 0.5, declared: 0.05 }],
        heads: BTreeMap::from([("x/rill/2026-12.jsonl".into(), Head { lines: 3, digest: Digest::of("") })]),
        ts: "2026-12-01T11:00:00Z".parse().unwrap(),
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
