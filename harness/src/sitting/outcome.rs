//! What a sitting gave, for people and for programs.

use std::io::IsTerminal;

use weir_model::metric::Metric;
use weir_model::record::{Measurement, Record, Verdict};
use weir_model::summary::{Style, summarise, table};

use super::SittingError;

/// The records of a sitting, in order.
#[derive(Debug)]
pub struct Outcome {
    /// One a run.
    pub records: Vec<Measurement>,
    /// What the sitting could tell apart; none if nothing was run.
    pub verdict: Option<Verdict>,
    /// The same as the lines that were appended.
    pub lines: Vec<String>,
}

impl Outcome {
    /// Prints the table, or the records as JSON lines, on standard output.
    pub fn print(&self, json: bool) {
        if json {
            for line in &self.lines {
                say!("{line}");
            }
        } else {
            let style = Style { colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() };
            let runs = self.records.iter().map(|one| Record::Measurement(Box::new(one.clone())));
            let records: Vec<Record> = runs.chain(self.verdict.clone().map(Record::Verdict)).collect();
            for group in summarise(&records) {
                say_on!("{}", table(&group, style));
            }
        }
    }

    /// Whether every run has numbers.
    ///
    /// # Errors
    /// [`SittingError::RunsFailed`] naming the arms that do not.
    pub fn verdict(&self) -> Result<(), SittingError> {
        let without: Vec<&Measurement> = self.records.iter().filter(|record| !record.status.is_measured()).collect();
        if without.is_empty() {
            return Ok(());
        }
        let mut labels: Vec<String> = without.iter().map(|record| label(record)).collect();
        labels.sort();
        labels.dedup();
        Err(SittingError::RunsFailed { failed: without.len(), all: self.records.len(), labels })
    }
}

fn label(record: &Measurement) -> String {
    format!("{}:{}", record.entrant.id, record.entrant.variant)
}

/// One finished run in one line.
#[must_use]
pub(super) fn line(record: &Measurement, of: usize) -> String {
    let again = if record.aa { " (control)" } else { "" };
    let head = format!("[{}/{of}] {:<34} rep {}{again}", record.order, label(record), record.rep);
    match (record.value(Metric::CpuUsPerRow), record.value(Metric::RowsPerS)) {
        (Some(cpu), Some(rows)) => {
            let duplicates = record.gates.as_ref().map_or(0, |gates| gates.duplicates);
            let more = if duplicates > 0 { format!(", {duplicates} duplicates") } else { String::new() };
            format!("{head}  gates passed  {cpu:.3} CPU-µs/row  {rows:.0} rows/s{more}")
        }
        _ => format!("{head}  {}: {}", record.status, record.note.lines().next().unwrap_or_default()),
    }
}
