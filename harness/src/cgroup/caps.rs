//! Writing caps and reading them back.

use serde::{Deserialize, Serialize};

use super::files::{self, malformed};
use super::{Caps, Cgroup, CgroupError, Version};

/// Length of a bandwidth period in µs: the kernel's default, and what container runtimes write.
const PERIOD_US: u64 = 100_000;
/// Caps on memory are kept in whole pages.
const PAGE: u64 = 4096;
/// At or above this a version 1 byte limit means "none" (`PAGE_COUNTER_MAX` pages).
const V1_UNLIMITED: u64 = 1 << 60;

/// The caps that a running group has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReadBack {
    /// CPUs; infinite when unbounded.
    pub cpus: f64,
    /// Memory in bytes; `u64::MAX` when unbounded.
    pub memory: u64,
    /// Swap in bytes that the group may use; 0 means off.
    pub swap: u64,
}

impl Cgroup {
    /// Writes `caps` and turns swap off.
    ///
    /// # Errors
    /// When a file of the interface refuses the value, or swap cannot be turned off on a host that has swap.
    pub fn apply(&self, caps: Caps) -> Result<(), CgroupError> {
        let quota = quota_us(caps);
        let memory = whole_pages(caps.memory).to_string();
        match self.version {
            Version::V2 => {
                files::write(&self.cpu, "cpu.max", &format!("{quota} {PERIOD_US}"))?;
                files::write(&self.memory, "memory.max", &memory)?;
                if self.has("memory.swap.max") {
                    files::write(&self.memory, "memory.swap.max", "0")?;
                }
            }
            Version::V1 => {
                files::write(&self.cpu, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
                files::write(&self.cpu, "cpu.cfs_quota_us", &quota.to_string())?;
                files::write(&self.memory, "memory.limit_in_bytes", &memory)?;
                if self.has("memory.memsw.limit_in_bytes") {
                    files::write(&self.memory, "memory.memsw.limit_in_bytes", &memory)?;
                } else {
                    files::write(&self.memory, "memory.swappiness", "0")?;
                }
            }
        }
        Ok(())
    }

    /// Reads the caps that are in force.
    ///
    /// # Errors
    /// When a file of the interface cannot be read or understood.
    pub fn read_back(&self) -> Result<ReadBack, CgroupError> {
        let (cpus, memory) = match self.version {
            Version::V2 => (self.cpus_v2()?, files::number(&self.memory, "memory.max")?),
            Version::V1 => (self.cpus_v1()?, self.bytes_v1("memory.limit_in_bytes")?),
        };
        Ok(ReadBack { cpus, memory, swap: self.swap(memory)? })
    }

    /// Reads the caps back and compares them with what was asked.
    ///
    /// # Errors
    /// [`CgroupError::Mismatch`] names the file, the value asked for and the value read.
    pub fn assert_caps(&self, asked: Caps) -> Result<ReadBack, CgroupError> {
        let got = self.read_back()?;
        let (cpu_file, memory_file, swap_file) = match self.version {
            Version::V2 => ("cpu.max", "memory.max", "memory.swap.max"),
            Version::V1 if self.has("memory.memsw.limit_in_bytes") => {
                ("cpu.cfs_quota_us", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            }
            Version::V1 => ("cpu.cfs_quota_us", "memory.limit_in_bytes", "memory.swappiness"),
        };
        #[expect(clippy::cast_precision_loss, reason = "a quota is far below 2^52 µs")]
        let cpus = quota_us(asked) as f64 / PERIOD_US as f64;
        if (got.cpus - cpus).abs() > 1e-6 {
            let path = self.cpu.join(cpu_file);
            return Err(mismatch(path, format!("{cpus} CPUs"), format!("{} CPUs", got.cpus)));
        }
        let memory = whole_pages(asked.memory);
        if got.memory != memory {
            let path = self.memory.join(memory_file);
            return Err(mismatch(path, format!("{memory} bytes"), format!("{} bytes", got.memory)));
        }
        if got.swap != 0 {
            let path = self.memory.join(swap_file);
            return Err(mismatch(path, "no swap".into(), format!("{} bytes of swap", got.swap)));
        }
        Ok(got)
    }

    fn has(&self, memory_file: &str) -> bool {
        self.memory.join(memory_file).exists()
    }

    fn cpus_v2(&self) -> Result<f64, CgroupError> {
        let text = files::text(&self.cpu, "cpu.max")?;
        let bad = || malformed(&self.cpu, "cpu.max", "quota and period");
        let (quota, period) = text.trim().split_once(' ').ok_or_else(bad)?;
        if quota == "max" {
            return Ok(f64::INFINITY);
        }
        let quota: f64 = quota.parse().map_err(|_| bad())?;
        let period: f64 = period.parse().map_err(|_| bad())?;
        Ok(quota / period)
    }

    #[expect(clippy::cast_precision_loss, reason = "a quota is far below 2^52 µs")]
    fn cpus_v1(&self) -> Result<f64, CgroupError> {
        let quota = files::number(&self.cpu, "cpu.cfs_quota_us")?;
        let period = files::number(&self.cpu, "cpu.cfs_period_us")?;
        Ok(if quota == u64::MAX { f64::INFINITY } else { quota as f64 / period as f64 })
    }

    fn bytes_v1(&self, name: &str) -> Result<u64, CgroupError> {
        let bytes = files::number(&self.memory, name)?;
        Ok(if bytes >= V1_UNLIMITED { u64::MAX } else { bytes })
    }

    /// Bytes of swap the group may use beyond `memory`.
    fn swap(&self, memory: u64) -> Result<u64, CgroupError> {
        match self.version {
            Version::V2 if self.has("memory.swap.max") => files::number(&self.memory, "memory.swap.max"),
            Version::V1 if self.has("memory.memsw.limit_in_bytes") => {
                Ok(self.bytes_v1("memory.memsw.limit_in_bytes")?.saturating_sub(memory))
            }
            Version::V1 if files::number(&self.memory, "memory.swappiness")? == 0 => Ok(0),
            _ if host_has_swap() => Ok(u64::MAX),
            _ => Ok(0),
        }
    }
}

/// The quota in µs a period that stands for `caps.cpus`.
fn quota_us(caps: Caps) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "CPUs are small and positive; a float-to-int cast saturates"
    )]
    let quota = (caps.cpus * PERIOD_US as f64).round() as u64;
    quota.max(1000)
}

fn whole_pages(bytes: u64) -> u64 {
    bytes / PAGE * PAGE
}

/// Whether this host has a swap area in use.
fn host_has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

fn mismatch(path: std::path::PathBuf, asked: String, got: String) -> CgroupError {
    CgroupError::Mismatch { path, asked, got }
}
