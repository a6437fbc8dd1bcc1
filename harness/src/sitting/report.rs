//! From a run to its record.

use jiff::Timestamp;
use weir_model::archive::KeptSeries;
use weir_model::binding;
use weir_model::flag::Flag;
use weir_model::id::{Class, Role};
use weir_model::metric::{Metric, Metrics};
use weir_model::record::{
    AppliedCaps, EntrantFacts, EnvFacts, Expected, GateFacts, InfraFacts, Measurement, ProtocolFacts, Reading, Record,
    Window as RecordWindow, Windows,
};
use weir_model::status::Status;

use super::Sitting;
use super::arm::{Identified, Judged, Measured, Planned};
use crate::measure::drain::Window;
use crate::measure::series::{Series, WindowUsage};
use crate::runtime::{Caps, ReadBack};

/// Version of the measuring protocol. Raised by hand when a change moves numbers; METHODOLOGY.md has the table.
pub const HARNESS_VERSION: u32 = 1;

/// A window shorter than this is flagged: its edges weigh more than a percent.
const SHORT_WINDOW_S: f64 = 5.0;
/// Share of throttled periods from which a run is flagged as held back by its cap.
const THROTTLED_SHARE: f64 = 0.05;

/// What every record of a sitting has in common.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Protocol, corpus and suite.
    pub protocol: ProtocolFacts,
    /// What the runs go against.
    pub infra: InfraFacts,
    /// Flags of host and checkout.
    pub flags: Vec<Flag>,
    /// Whether this host enforces caps.
    pub enforced: bool,
    /// What the workspace's artefacts are built with.
    pub toolchain: Option<String>,
}

/// The record of a run that came to an end and was gated.
#[must_use]
pub fn of_judged(sitting: &Sitting, judged: &Judged<'_>, series: KeptSeries) -> Record {
    let measured = &judged.measured;
    let mut record = base(sitting, &measured.who, measured.read_back);
    record.gates = Some(GateFacts {
        rows: Expected { expected: judged.report.expected, got: judged.report.got },
        duplicates: judged.report.duplicates,
        checked_batches: judged.report.checked_batches,
    });
    (record.series, record.series_digest) = (Some(series.path), Some(series.digest));
    if judged.report.duplicates > 0 {
        record.flags.push(Flag::Duplicates { count: judged.report.duplicates });
    }
    match (judged.failure(), measured.drained.full_window()) {
        (Some(why), _) => record.note = why,
        (None, None) => record.note = "no row landed".into(),
        (None, Some(window)) => match metrics(measured, window, &measured.series) {
            Err(why) => record.note = why,
            Ok((metrics, usage)) => {
                record.status = Status::Ok;
                record.flags.extend(flags_of(window, &usage));
                record.reading = Reading::Drain { metrics };
                record.windows = Some(Windows { full: recorded(window), plateau: None });
                let claimed = measured.who.planned.arm.variant().binding.constraint;
                record.flags.extend(binding::flag(claimed, &record));
            }
        },
    }
    Record::Measurement(Box::new(record))
}

/// The record of a run that has no numbers, of an entrant that is identified.
#[must_use]
pub fn of_failed(sitting: &Sitting, who: &Identified<'_>, why: &str) -> Record {
    let mut record = base(sitting, who, None);
    record.note = why.to_owned();
    Record::Measurement(Box::new(record))
}

/// The record of a run whose artefact could not be identified.
#[must_use]
pub fn of_unidentified(sitting: &Sitting, planned: Planned<'_>, why: &str) -> Record {
    let mut record = facts(sitting, planned, None);
    record.note = why.to_owned();
    Record::Measurement(Box::new(record))
}

fn base(sitting: &Sitting, who: &Identified<'_>, read_back: Option<ReadBack>) -> Measurement {
    let mut record = facts(sitting, who.planned, read_back);
    record.entrant.version.clone_from(&who.version);
    record.entrant.artefact = Some(who.artefact);
    record
}

/// Everything about a run but what was measured; its status is failed until a number says otherwise.
fn facts(sitting: &Sitting, planned: Planned<'_>, read_back: Option<ReadBack>) -> Measurement {
    let (plan, shared, arm) = (&sitting.plan, &sitting.shared, planned.arm);
    let variant = arm.variant();
    let built_here = arm.entrant.build.bin.is_some();
    let mut flags = shared.flags.clone();
    flags.push(Flag::HeadroomUnproven { reason: "no ceiling has been measured on this environment".into() });
    Measurement {
        run_id: planned.run_id,
        sitting: sitting.id,
        ts: Timestamp::now(),
        trigger: plan.trigger,
        rep: planned.slot.rep,
        reps: plan.reps,
        order: planned.slot.order,
        aa: planned.slot.aa,
        workload: plan.workload,
        status: Status::Failed,
        entrant: EntrantFacts {
            id: arm.entrant.identity.id.clone(),
            variant: variant.id.clone(),
            version: arm.entrant.version.pinned.clone(),
            artefact: None,
            toolchain: built_here.then(|| shared.toolchain.clone()).flatten(),
            commit: built_here.then(|| shared.protocol.harness_commit.clone()).flatten(),
        },
        approach: variant.approach,
        wire_format: variant.wire_format,
        guarantees: arm.entrant.guarantees.clone(),
        knobs: variant.knobs.clone(),
        binding: variant.binding.sentence.clone(),
        env: EnvFacts {
            id: plan.resolved.id.clone(),
            profile: plan.environment.id.clone(),
            class: if shared.enforced { plan.environment.class } else { Class::Fixture },
            digest: plan.resolved.digest,
            envelope_scale: plan.resolved.scale,
            host: plan.host.clone(),
            envelope: applied(arm, read_back),
        },
        protocol: shared.protocol.clone(),
        infra: shared.infra.clone(),
        reading: Reading::Drain { metrics: Metrics::new() },
        windows: None,
        series: None,
        series_digest: None,
        gates: None,
        flags,
        note: String::new(),
    }
}

/// The caps of the arm's containers, as asked and whether the running control groups gave back the same.
fn applied(arm: &crate::plan::Arm, read_back: Option<ReadBack>) -> Vec<AppliedCaps> {
    let caps = |name: &str, role, Caps { cpus, memory }| AppliedCaps {
        name: name.to_owned(),
        role,
        cpus,
        memory,
        swap: read_back.map_or(0, |caps| caps.swap),
        read_back: read_back.is_some(),
    };
    let name = arm.entrant.data_plane().map_or("sut", |container| container.name.as_str());
    let control = arm.control_plane().map(|it| caps(&it.name, Role::ControlPlane, arm.caps_of(it)));
    std::iter::once(caps(name, Role::DataPlane, arm.caps)).chain(control).collect()
}

fn recorded(window: Window) -> RecordWindow {
    let at = |us: u64| Timestamp::from_microsecond(us.try_into().unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
    RecordWindow { from: at(window.from_us), to: at(window.to_us), rows: window.rows }
}

/// The metrics of a run, or why there are none.
fn metrics(measured: &Measured<'_>, window: Window, series: &Series) -> Result<(Metrics, WindowUsage), String> {
    let rows_per_s = window.rows_per_s().ok_or("the window is empty")?;
    let usage = series.window("sut", window.from_us, window.to_us).map_err(|error| error.to_string())?;
    let rows = window.rows as f64;
    let mut metrics = Metrics::new();
    metrics.set(Metric::CpuUsPerRow, usage.cpu_us / rows);
    metrics.set(Metric::UserUsPerRow, usage.user_us / rows);
    metrics.set(Metric::SystemUsPerRow, usage.system_us / rows);
    metrics.set(Metric::RowsPerS, rows_per_s);
    metrics.set(Metric::DrainSeconds, window.seconds());
    metrics.set(Metric::DataPlaneCoresUsed, usage.cpu_us / 1e6 / window.seconds());
    let mut arm_us = usage.cpu_us;
    for name in &measured.control {
        arm_us += series.window(name, window.from_us, window.to_us).map_err(|error| error.to_string())?.cpu_us;
    }
    metrics.set(Metric::ArmCoresUsed, arm_us / 1e6 / window.seconds());
    metrics.set(Metric::DataPlanePeakAnonMb, usage.peak_anon as f64 / 1e6);
    metrics.set(Metric::PeakMb, usage.peak_current as f64 / 1e6);
    if measured.read_back.is_some() {
        metrics.set(Metric::ThrottledShare, usage.throttled_share);
    }
    if measured.inserts > 0 {
        metrics.set(Metric::RowsPerInsert, measured.inserted as f64 / measured.inserts as f64);
    }
    // Until the arm has stopped: the last inserts and the merges they cause cost the server too.
    let server = |name: &str| series.window(name, window.from_us, measured.stopped_us).map_err(|e| e.to_string());
    let clickhouse = server("clickhouse")?;
    metrics.set(Metric::ClickhouseCpuUsPerRow, clickhouse.cpu_us / rows);
    metrics.set(Metric::ClickhousePeakMb, clickhouse.peak_current as f64 / 1e6);
    metrics.set(Metric::BrokerCpuUsPerRow, server("broker")?.cpu_us / rows);
    Ok((metrics, usage))
}

fn flags_of(window: Window, usage: &WindowUsage) -> Vec<Flag> {
    let mut flags = Vec::new();
    if window.seconds() < SHORT_WINDOW_S {
        flags.push(Flag::ShortWindow { seconds: window.seconds() });
    }
    if usage.throttled_share >= THROTTLED_SHARE {
        flags.push(Flag::CpuThrottled { share: usage.throttled_share });
    }
    flags
}
