//! An examination as text for people.

use std::fmt::{Display, Formatter, Result};

use weir_model::units::{bytes, percent};

use super::Examination;
use crate::setup::Presence;

impl Display for Examination {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.host(f)?;
        self.around(f)?;
        self.cache(f)?;
        self.findings(f)
    }
}

fn line(f: &mut Formatter<'_>, name: &str, value: impl Display) -> Result {
    writeln!(f, "  {name:<15} {value}")
}

fn known(value: Option<bool>, yes: &'static str, no: &'static str) -> &'static str {
    match value {
        Some(true) => yes,
        Some(false) => no,
        None => "unknown",
    }
}

impl Examination {
    fn host(&self, f: &mut Formatter<'_>) -> Result {
        let host = &self.host;
        writeln!(f, "host")?;
        line(f, "cpu", format_args!("{}, {} usable, {}", host.cpu, host.cores, host.arch))?;
        line(f, "governor", host.governor.as_deref().unwrap_or("none"))?;
        line(f, "SMT", known(host.smt, "on", "off"))?;
        line(f, "turbo", known(self.turbo, "on", "off"))?;
        line(f, "memory", bytes(host.memory))?;
        line(f, "swap", if host.swap == 0 { "none".to_owned() } else { bytes(host.swap) })?;
        line(f, "system", format_args!("{}, kernel {}", host.os, host.kernel))?;
        line(f, "virtual", host.virtualisation.as_deref().unwrap_or("no"))?;
        match &self.caps {
            None => line(f, "cgroup", format_args!("{}, caps can be enforced", host.cgroup)),
            Some(why) => line(f, "cgroup", format_args!("{}, caps cannot be enforced: {}", host.cgroup, why.reason)),
        }
    }

    fn around(&self, f: &mut Formatter<'_>) -> Result {
        if let Some(now) = &self.now {
            let [one, five, fifteen] = now.load;
            line(f, "load", format_args!("{one:.2} {five:.2} {fifteen:.2} over 1, 5, 15 minutes"))?;
            let (busy, steal) = (percent(now.busy_share), percent(now.steal_share));
            line(f, "CPU time now", format_args!("{busy} used, {steal} stolen"))?;
        }
        if let Some([soft, hard]) = self.open_files {
            line(f, "open files", format_args!("{soft}, at most {hard}"))?;
        }
        match &self.docker {
            Ok(version) => line(f, "Docker", version)?,
            Err(why) => line(f, "Docker", format_args!("none ({why})"))?,
        }
        writeln!(f, "\ntools")?;
        for (tool, version) in &self.tools {
            line(f, tool, version.as_deref().unwrap_or("missing"))?;
        }
        Ok(())
    }

    fn cache(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "\ncache {}, {} free", self.cache.dir.display(), bytes(self.cache.free))?;
        for (piece, presence) in &self.cache.pieces {
            let state = match presence {
                Presence::Proven => "ready",
                Presence::Unproven => "there, to be verified",
                Presence::Absent => "to be fetched",
            };
            writeln!(f, "  {piece:<23} {state}")?;
        }
        Ok(())
    }

    fn findings(&self, f: &mut Formatter<'_>) -> Result {
        if self.flags.is_empty() {
            writeln!(f, "\nnothing about this host flags a record")?;
        } else {
            writeln!(f, "\nflags on every record made here now")?;
        }
        for remark in &self.flags {
            writeln!(f, "  {}: {}", remark.flag.name(), remark.wording)?;
            writeln!(f, "    {}", remark.remedy)?;
        }
        if self.obstacles.is_empty() {
            return writeln!(f, "\n`bench run` is possible here");
        }
        writeln!(f, "\n`bench run` is not possible here")?;
        for obstacle in &self.obstacles {
            writeln!(f, "  {}: {}", obstacle.code, obstacle.message)?;
            if let Some(hint) = &obstacle.hint {
                writeln!(f, "    {hint}")?;
            }
        }
        Ok(())
    }
}
