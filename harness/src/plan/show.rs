//! A plan as text, for `--dry-run` and for the head of a sitting.

use std::fmt;

use weir_model::environment::RuntimeKind;
use weir_model::units::bytes;

use super::RunPlan;
use super::order::Slot;
use crate::runtime::Caps;

/// Where something in a container comes from and goes to; nothing for a process.
fn place(image: Option<&str>, host: Option<&str>) -> String {
    let from = image.map(|image| format!(", from {image}")).unwrap_or_default();
    let on = host.map(|host| format!(", on {host}")).unwrap_or_default();
    format!("{from}{on}")
}

impl fmt::Display for RunPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resolved = &self.resolved;
        writeln!(f, "environment  {} (scale {})", resolved.id, resolved.scale)?;
        writeln!(f, "host         {}", self.host.summary())?;
        writeln!(f, "workload     {}, {} batches, drain", self.workload, self.batches)?;
        let caps = |cpus: f64, memory: u64| format!("{cpus} CPUs, {}", bytes(memory));
        let infra = &self.environment.infra;
        for (name, part, given) in
            [("broker", &infra.broker, resolved.broker), ("clickhouse", &infra.clickhouse, resolved.clickhouse)]
        {
            let image = part.image.as_ref().map(|source| source.image.as_str());
            let from = place(image, part.docker_host.as_deref());
            writeln!(f, "{name:<12} {}{from}", caps(given.cpus, given.memory))?;
        }
        let in_containers = self.environment.runtime == RuntimeKind::Docker;
        for arm in &self.arms {
            let image = arm.entrant.build.image.as_deref().filter(|_| in_containers);
            let from = place(image, self.environment.system_host.as_deref());
            writeln!(f, "arm          {} in {}{from}", arm.label(), caps(arm.caps.cpus, arm.caps.memory))?;
            for container in arm.control_plane().filter(|_| in_containers) {
                let Caps { cpus, memory } = arm.caps_of(container);
                writeln!(f, "             with {} in {} on top", container.name, caps(cpus, memory))?;
            }
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
