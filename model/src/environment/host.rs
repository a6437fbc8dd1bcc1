//! What a host is, as its own files say.

use serde::{Deserialize, Serialize};

use crate::units::bytes;

/// Facts about a host. The harness reads them; everything but the boot is part of an environment's digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    /// CPU model.
    pub cpu: String,
    /// CPUs this suite may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Such as `x86_64`.
    pub arch: String,
    /// Operating system, such as `Debian GNU/Linux 13`.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU frequency governor, where there is one.
    pub governor: Option<String>,
    /// Whether sibling hardware threads share cores, where known.
    pub smt: Option<bool>,
    /// Control groups: `v1` or `v2`.
    pub cgroup: String,
    /// Kind of virtual machine, or none on bare metal.
    pub virtualisation: Option<String>,
    /// Swap in bytes.
    pub swap: u64,
    /// Identity of the boot; not part of the digest.
    pub boot_id: String,
}

impl HostFacts {
    /// One line for people.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{} · {} cores · {} · {} · {} {} · cgroup {}",
            self.cpu,
            self.cores,
            bytes(self.memory),
            self.arch,
            self.os,
            self.kernel,
            self.cgroup
        )
    }

    /// What of the host makes two environments two: not the boot, and memory in whole GiB, since kernels differ in
    /// how much they keep for themselves.
    pub(super) fn identity(&self) -> serde_json::Value {
        serde_json::json!({
            "cpu": self.cpu, "cores": self.cores, "memory_gib": self.memory.div_ceil(1 << 30), "arch": self.arch,
            "os": self.os, "kernel": self.kernel, "governor": self.governor, "smt": self.smt, "cgroup": self.cgroup,
            "virtualisation": self.virtualisation, "swap": self.swap > 0,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::environment) fn host(cores: u32, gib: u64) -> HostFacts {
        HostFacts {
            cpu: "Example CPU".into(),
            cores,
            memory: gib << 30,
            arch: "x86_64".into(),
            os: "Example Linux 1".into(),
            kernel: "6.1.0".into(),
            governor: None,
            smt: Some(false),
            cgroup: "v2".into(),
            virtualisation: None,
            swap: 0,
            boot_id: "b".into(),
        }
    }

    #[test]
    fn a_boot_and_a_kernels_own_memory_make_no_other_host() {
        let mut other = host(2, 24);
        other.boot_id = "c".into();
        other.memory -= 100 << 20;
        assert_eq!(host(2, 24).identity(), other.identity());
        other.cores = 4;
        assert_ne!(host(2, 24).identity(), other.identity());
    }
}
