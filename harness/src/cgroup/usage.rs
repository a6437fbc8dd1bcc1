//! What a group has used.

use serde::{Deserialize, Serialize};

use super::files::{self, keyed, malformed};
use super::{Cgroup, CgroupError, Version};

/// Counters and gauges of one group, all of it and what is below it, at one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in µs.
    pub cpu_us: u64,
    /// Of it in user mode, µs.
    pub user_us: u64,
    /// Of it in the kernel, µs.
    pub system_us: u64,
    /// Bandwidth periods in which the group wanted to run; 0 without a CPU cap.
    pub periods: u64,
    /// Periods in which its quota ran out.
    pub throttled: u64,
    /// Time its CPUs stood throttled, µs (summed over CPUs).
    pub throttled_us: u64,
    /// Anonymous memory in bytes.
    pub anon: u64,
    /// All charged memory in bytes, page cache included.
    pub current: u64,
    /// Highest `current` ever, bytes; `None` where the kernel keeps none (version 2 before Linux 5.19).
    pub peak: Option<u64>,
    /// Tasks (threads) in it; `None` without the pids controller.
    pub pids: Option<u64>,
    /// Bytes read from block devices; `None` without the io controller.
    pub io_read: Option<u64>,
    /// Bytes written to block devices; `None` without the io controller.
    pub io_written: Option<u64>,
    /// Members that the kernel killed for exceeding the memory cap.
    pub oom_kills: u64,
}

impl Cgroup {
    /// Reads what the group has used so far.
    ///
    /// # Errors
    /// When a file of the interface cannot be read or understood, for instance because the group is gone.
    pub fn usage(&self) -> Result<Usage, CgroupError> {
        let mut usage = match self.version {
            Version::V2 => self.usage_v2()?,
            Version::V1 => self.usage_v1()?,
        };
        if let Some(dir) = &self.pids {
            usage.pids = files::optional_number(dir, "pids.current")?;
        }
        Ok(usage)
    }

    /// How many members the kernel has killed for exceeding the memory cap.
    ///
    /// # Errors
    /// When the counter's file cannot be read.
    pub fn oom_kills(&self) -> Result<u64, CgroupError> {
        let name = match self.version {
            Version::V2 => "memory.events",
            Version::V1 => "memory.oom_control",
        };
        Ok(keyed(&files::text(&self.memory, name)?, "oom_kill").unwrap_or(0))
    }

    fn usage_v2(&self) -> Result<Usage, CgroupError> {
        let cpu = files::text(&self.cpu, "cpu.stat")?;
        let need = |key: &str| keyed(&cpu, key).ok_or_else(|| malformed(&self.cpu, "cpu.stat", key));
        let memory = files::text(&self.memory, "memory.stat")?;
        let io = match &self.io {
            Some(dir) => files::optional_text(dir, "io.stat")?,
            None => None,
        };
        Ok(Usage {
            cpu_us: need("usage_usec")?,
            user_us: need("user_usec")?,
            system_us: need("system_usec")?,
            periods: keyed(&cpu, "nr_periods").unwrap_or(0),
            throttled: keyed(&cpu, "nr_throttled").unwrap_or(0),
            throttled_us: keyed(&cpu, "throttled_usec").unwrap_or(0),
            anon: keyed(&memory, "anon").ok_or_else(|| malformed(&self.memory, "memory.stat", "anon"))?,
            current: files::number(&self.memory, "memory.current")?,
            peak: files::optional_number(&self.memory, "memory.peak")?,
            pids: None,
            io_read: io.as_deref().map(|text| sum_v2(text, "rbytes=")),
            io_written: io.as_deref().map(|text| sum_v2(text, "wbytes=")),
            oom_kills: self.oom_kills()?,
        })
    }

    fn usage_v1(&self) -> Result<Usage, CgroupError> {
        let cpu = files::text(&self.cpu, "cpu.stat")?;
        let memory = files::text(&self.memory, "memory.stat")?;
        let (user_us, system_us) = self.modes_v1()?;
        let io = match &self.io {
            Some(dir) => files::optional_text(dir, "blkio.throttle.io_service_bytes_recursive")?,
            None => None,
        };
        Ok(Usage {
            cpu_us: files::number(&self.cpuacct, "cpuacct.usage")? / 1000,
            user_us,
            system_us,
            periods: keyed(&cpu, "nr_periods").unwrap_or(0),
            throttled: keyed(&cpu, "nr_throttled").unwrap_or(0),
            throttled_us: keyed(&cpu, "throttled_time").unwrap_or(0) / 1000,
            anon: keyed(&memory, "total_rss").ok_or_else(|| malformed(&self.memory, "memory.stat", "total_rss"))?,
            current: files::number(&self.memory, "memory.usage_in_bytes")?,
            peak: files::optional_number(&self.memory, "memory.max_usage_in_bytes")?,
            pids: None,
            io_read: io.as_deref().map(|text| sum_v1(text, "Read")),
            io_written: io.as_deref().map(|text| sum_v1(text, "Write")),
            oom_kills: self.oom_kills()?,
        })
    }

    /// User and system time in µs. `cpuacct.stat` is scaled by the kernel so that both add up to the usage, as
    /// version 2's are, in steps of a clock tick; the nanosecond files are the fallback.
    fn modes_v1(&self) -> Result<(u64, u64), CgroupError> {
        if let Some(text) = files::optional_text(&self.cpuacct, "cpuacct.stat")? {
            let ticks = |key| keyed(&text, key).ok_or_else(|| malformed(&self.cpuacct, "cpuacct.stat", key));
            let us = crate::runtime::proctree::tick_us();
            return Ok((ticks("user")? * us, ticks("system")? * us));
        }
        let user = files::number(&self.cpuacct, "cpuacct.usage_user")? / 1000;
        let system = files::number(&self.cpuacct, "cpuacct.usage_sys")? / 1000;
        Ok((user, system))
    }
}

/// Sum over devices of the `key=` field in version 2's `io.stat` (`8:0 rbytes=… wbytes=… …`).
fn sum_v2(text: &str, key: &str) -> u64 {
    text.split_whitespace().filter_map(|field| field.strip_prefix(key)?.parse::<u64>().ok()).sum()
}

/// Sum over devices of the lines `<device> <operation> <bytes>` in version 1's service-bytes file.
fn sum_v1(text: &str, operation: &str) -> u64 {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (_, name, bytes) = (fields.next()?, fields.next()?, fields.next()?);
            (name == operation).then(|| bytes.parse::<u64>().ok()).flatten()
        })
        .sum()
}
