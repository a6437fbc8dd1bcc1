//! One run of one arm, phase by phase.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_model::digest::Digest;
use weir_model::id::RunId;

use super::caps;
use super::contained;
use super::scene::{ArmScene, now_us};
use super::values::Values;
use super::{Sitting, SittingError};
use crate::measure::drain::{self, Drained, Ending, Pace};
use crate::measure::series::Series;
use crate::plan::Arm;
use crate::plan::order::Slot;
use crate::runtime::{Exit, ReadBack, Running, Service};
use crate::verdict::gates::{self, Report, Totals, Wanted};
use crate::workload::gate::{GateRow, gate_sql, identities_sql};

/// How long an arm is given to drain after SIGTERM.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// Lines of an arm's log that go into the note of a failed run.
const LOG_LINES: usize = 12;

/// Why a run has no numbers: a fact about the arm, to be recorded, not an error of the suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed(pub String);

/// A run that has its place in the sitting and nothing else yet.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    /// Identity of the run.
    pub run_id: RunId,
    /// Its place.
    pub slot: Slot,
    /// The arm.
    pub arm: &'a Arm,
}

/// What ran: read from the artefact before it is started.
#[derive(Debug, Clone)]
pub struct Identified<'a> {
    /// The run.
    pub planned: Planned<'a>,
    /// The version that the artefact reports.
    pub version: String,
    /// Its digest.
    pub artefact: Digest,
}

/// A run whose table is empty and whose command is complete.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// What will run.
    pub who: Identified<'a>,
    service: Service,
    /// What starts before it.
    control: Vec<Service>,
    group: String,
    inserted_before: u64,
    inserts_before: u64,
}

/// A run that was watched to its end.
#[derive(Debug)]
pub struct Measured<'a> {
    /// What ran.
    pub who: Identified<'a>,
    /// What was seen.
    pub drained: Drained,
    /// How the caps differed at the end from those at the beginning.
    pub caps_changed: Option<String>,
    /// The caps as its control group gave them back.
    pub read_back: Option<ReadBack>,
    /// How it ended after it was asked to.
    pub exit: Exit,
    /// When every process of it was gone; late inserts are over by then.
    pub stopped_us: u64,
    /// Rows ClickHouse counted as inserted meanwhile.
    pub inserted: u64,
    /// Insert queries ClickHouse counted meanwhile.
    pub inserts: u64,
    /// What the sampler read while it ran.
    pub series: Series,
    /// Names of its control plane's containers.
    pub control: Vec<String>,
    log: PathBuf,
}

/// A run whose rows have been compared with their closed form.
#[derive(Debug)]
pub struct Judged<'a> {
    /// What was measured.
    pub measured: Measured<'a>,
    /// What the gates found.
    pub report: Report,
}

impl<'a> Planned<'a> {
    /// Asks the artefact for its version and hashes it.
    ///
    /// # Errors
    /// [`Failed`] inside when it does not answer, or reports another version than is pinned.
    pub fn identify(self, sitting: &mut Sitting) -> Result<Result<Identified<'a>, Failed>, SittingError> {
        let run_dir = sitting.run_dir(self.run_id)?;
        let values = sitting.values(&self, &run_dir, "");
        let version = &self.arm.entrant.version;
        let command = match filled(&values, "[version] command", &version.command) {
            Ok(command) => command,
            Err(failed) => return Ok(Err(failed)),
        };
        let asked = match &sitting.stage.containers {
            Some(containers) => {
                let container = self.arm.entrant.data_plane().map_or("", |container| container.name.as_str());
                containers.ask(self.arm, container, &command).map(|(said, image)| (said, Some(image)))
            }
            None => sitting.ask(&command).map(|said| (said, None)),
        };
        let (said, image) = match asked {
            Ok(said) => said,
            Err(why) => return Ok(Err(Failed(format!("its version command `{}` {why}", command.join(" "))))),
        };
        if !said.split(|c: char| c.is_whitespace() || c == ',').any(|word| word == version.pinned) {
            let what = format!("it is pinned to version {}, the artefact says `{}`", version.pinned, said.trim());
            return Ok(Err(Failed(what)));
        }
        if let Some(artefact) = image {
            return Ok(Ok(Identified { planned: self, version: version.pinned.clone(), artefact }));
        }
        let artefact = match &version.artefact {
            Some(template) => values.fill("[version] artefact", template),
            None => Ok(sitting.program(&command[0]).display().to_string()),
        };
        Ok(match artefact {
            Err(error) => Err(Failed(error.to_string())),
            Ok(path) => match sitting.digest_of(Path::new(&path)) {
                Err(why) => Err(Failed(format!("its artefact {path} cannot be read: {why}"))),
                Ok(artefact) => Ok(Identified { planned: self, version: version.pinned.clone(), artefact }),
            },
        })
    }
}

/// Every word of a command with its placeholders replaced.
pub(super) fn filled(values: &Values<'_>, place: &str, words: &[String]) -> Result<Vec<String>, Failed> {
    words.iter().map(|word| values.fill(place, word).map_err(|error| Failed(error.to_string()))).collect()
}

impl<'a> Identified<'a> {
    /// Empties the target table and completes the arm's command.
    ///
    /// # Errors
    /// When ClickHouse does not answer; [`Failed`] inside when the arm's texts cannot be filled in.
    pub fn prepare(self, sitting: &Sitting) -> Result<Result<Prepared<'a>, Failed>, SittingError> {
        sitting.recreate_table()?;
        let run_dir = sitting.run_dir(self.planned.run_id)?;
        let group = format!("weir-{}", self.planned.run_id);
        let values = sitting.values(&self.planned, &run_dir, &group);
        let services = match &sitting.stage.containers {
            Some(containers) => contained::services(containers, &self, &values),
            None => service(sitting, &self, &values).map(|service| (service, vec![])),
        };
        let (service, control) = match services {
            Ok(services) => services,
            Err(failed) => return Ok(Err(failed)),
        };
        let (inserted_before, inserts_before) = sitting.insert_counters()?;
        Ok(Ok(Prepared { who: self, service, control, group, inserted_before, inserts_before }))
    }
}

/// Environment variables with their placeholders replaced.
pub(super) fn variables<'v>(
    values: &Values<'_>,
    texts: impl Iterator<Item = (&'v String, &'v String)>,
) -> Result<BTreeMap<String, String>, Failed> {
    let filled = texts.map(|(name, text)| {
        let value = values.fill(&format!("env {name}"), text).map_err(|error| Failed(error.to_string()))?;
        Ok((name.clone(), value))
    });
    filled.collect()
}

/// The process of an arm.
fn service(sitting: &Sitting, who: &Identified<'_>, values: &Values<'_>) -> Result<Service, Failed> {
    let entrant = &who.planned.arm.entrant;
    let Some(process) = &entrant.process else {
        return Err(Failed("its descriptor has no [process]: it cannot start without containers".into()));
    };
    let mut command = filled(values, "[process] command", &process.command)?;
    command[0] = sitting.program(&command[0]).display().to_string();
    Ok(Service {
        name: "sut".into(),
        command,
        env: variables(values, entrant.env.iter().chain(&process.env))?,
        dir: values.run_dir.to_path_buf(),
        log: values.run_dir.join("arm.log"),
        caps: Some(values.caps),
        grace: GRACE,
        contained: None,
    })
}

impl<'a> Prepared<'a> {
    /// Starts the arm, watches the table fill, and stops the arm.
    ///
    /// # Errors
    /// When the infrastructure fails; [`Failed`] inside when the arm cannot be started under its caps.
    pub fn measure(self, sitting: &mut Sitting) -> Result<Result<Measured<'a>, Failed>, SittingError> {
        let expected = sitting.expected_rows();
        let mut sampler = sitting.stage.sampler(&self.service.dir.join("series.jsonl"))?;
        sampler.add("broker", sitting.stage.broker.as_ref())?;
        sampler.add("clickhouse", sitting.stage.clickhouse.as_ref())?;
        // dropped, and so ended, after the data plane
        let mut control = Vec::new();
        for service in &self.control {
            match caps::started(sitting, &mut sampler, service)? {
                Ok(running) => control.push(running),
                Err(failed) => return Ok(Err(failed)),
            }
        }
        let mut running = match caps::started(sitting, &mut sampler, &self.service)? {
            Ok(running) => running,
            Err(failed) => return Ok(Err(failed)),
        };
        let mut parts: Vec<_> = self.control.iter().zip(control.iter().map(AsRef::as_ref)).collect();
        parts.push((&self.service, running.as_ref()));
        let read_back = match caps::hold(sitting, &mut sampler, &parts)? {
            Ok(read_back) => read_back,
            Err(failed) => return Ok(Err(failed)),
        };
        let drained = self.watch(sitting, running.as_mut(), expected)?;
        let held = match drained.ending {
            Ending::Complete => {
                let mut parts: Vec<_> = self.control.iter().zip(control.iter().map(AsRef::as_ref)).collect();
                parts.push((&self.service, running.as_ref()));
                caps::hold(sitting, &mut sampler, &parts)?.err()
            }
            _ => None,
        };
        let exit = running.stop();
        sampler.mark()?;
        let stopped_us = now_us();
        let series = sampler.finish()?;
        drop(running);
        let (inserted, inserts) = sitting.insert_counters()?;
        Ok(Ok(Measured {
            who: self.who,
            drained,
            caps_changed: held.map(|Failed(why)| why),
            read_back,
            exit,
            stopped_us,
            inserted: inserted.saturating_sub(self.inserted_before),
            inserts: inserts.saturating_sub(self.inserts_before),
            series,
            control: self.control.into_iter().map(|service| service.name).collect(),
            log: self.service.log,
        }))
    }

    fn watch(&self, sitting: &mut Sitting, running: &mut dyn Running, expected: u64) -> Result<Drained, SittingError> {
        let table = sitting.table().to_owned();
        let progress = sitting.progress(&self.who.planned, expected);
        let mut scene = ArmScene {
            running,
            stage: &mut sitting.stage,
            group: &self.group,
            table: &table,
            tell: &mut |rows| progress.set_position(rows),
        };
        let drained = drain::watch(&mut scene, expected, Pace::default());
        progress.finish_and_clear();
        drained
    }
}

impl<'a> Measured<'a> {
    /// Compares every landed row with its closed form.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn judge(self, sitting: &Sitting) -> Result<Judged<'a>, SittingError> {
        let table = sitting.table();
        let (rows, distinct) = sitting.stage.pair(&identities_sql(table))?;
        let tier = sitting.plan.workload.tier();
        let wanted =
            Wanted { expect: &sitting.expect, tier, batches: sitting.plan.batches, send_ts_us: &sitting.send_ts_us };
        let lines = sitting.stage.client.lines(&gate_sql(tier, table))?;
        let rows_of_gate = lines.map(|line| -> Result<GateRow, SittingError> { Ok(GateRow::parse(&line?)?) });
        let report = gates::judge(wanted, Totals { rows, distinct, inserted: self.inserted }, rows_of_gate)?;
        Ok(Judged { measured: self, report })
    }

    /// Whether a signal cut the run short; then there is nothing to record.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.drained.ending == Ending::Interrupted
    }

    /// The last lines of the arm's log.
    fn log_tail(&self) -> String {
        tail(&self.log)
    }
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

impl Judged<'_> {
    /// Why there are no numbers, if there are none.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let measured = &self.measured;
        let mut why: Vec<String> = match &measured.drained.ending {
            Ending::Complete | Ending::Interrupted => vec![],
            Ending::Stalled => vec!["no row arrived for a minute and rows are missing".into()],
            Ending::ArmEnded(how) => vec![format!("it ended early: {how}")],
        };
        why.extend(measured.caps_changed.clone());
        if matches!(measured.exit, Exit::OutOfMemory) {
            why.push("it ran out of memory under its cap".into());
        }
        why.extend(self.report.failures.iter().map(ToString::to_string));
        if why.is_empty() {
            return None;
        }
        let tail = measured.log_tail();
        if !tail.is_empty() {
            why.push(format!("its log ends:\n{tail}"));
        }
        Some(why.join("\n"))
    }
}
