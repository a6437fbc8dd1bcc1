//! A plan as text, for `--dry-run` and for the head of a sitting.

use std::fmt;

use weir_model::units::bytes;

use super::RunPlan;
use super::order::Slot;

impl fmt::Display for RunPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resolved = &self.resolved;
        writeln!(f, "environment  {} (scale {})", resolved.id, resolved.scale)?;
        writeln!(f, "host         {}", self.host.summary())?;
        writeln!(f, "workload     {}, {} batches, drain", self.workload, self.batches)?;
        let caps = |cpus: f64, memory: u64| format!("{cpus} CPUs, {}", bytes(memory));
        writeln!(f, "broker       {}", caps(resolved.broker.cpus, resolved.broker.memory))?;
        writeln!(f, "clickhouse   {}", caps(resolved.clickhouse.cpus, resolved.clickhouse.memory))?;
        for arm in &self.arms {
            writeln!(f, "arm          {} in {}", arm.label(), caps(arm.caps.cpus, arm.caps.memory))?;
        }
        writeln!(f, "order        {} runs, seed {}", self.slots.len(), self.seed)?;
        for line in self.slots.chunk_by(|a, b| a.rep == b.rep) {
            let label = |slot: &Slot| {
                let again = if slot.aa { " (control)" } else { "" };
                format!("{}{again}", self.arms[slot.arm].label())
            };
            let labels: Vec<String> = line.iter().map(label).collect();
            writeln!(f, "  repetition {}: {}", line[0].rep, labels.join(", "))?;
        }
        Ok(())
    }
}
