//! What this host is, read from `/proc`, `/sys` and `/etc/os-release`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use weir_model::environment::HostFacts;
use weir_model::flag::Flag;

use super::SetupError;
use crate::cgroup::Hierarchy;

/// The facts of this host that a record carries.
///
/// # Errors
/// [`SetupError::Io`] when a file that every Linux has cannot be read.
pub fn detect(cgroups: &Hierarchy) -> Result<HostFacts, SetupError> {
    detect_at(Path::new("/"), cgroups)
}

/// As [`detect`], of the host whose `/proc`, `/sys` and `/etc` are below `root`.
///
/// # Errors
/// As [`detect`].
pub fn detect_at(root: &Path, cgroups: &Hierarchy) -> Result<HostFacts, SetupError> {
    let needed = |path: &str| fs::read_to_string(root.join(path)).map_err(SetupError::io("read", root.join(path)));
    let cpuinfo = needed("proc/cpuinfo")?;
    let meminfo = needed("proc/meminfo")?;
    let status = needed("proc/self/status")?;
    let kernel = needed("proc/sys/kernel/osrelease")?.trim().to_owned();
    let bounds = Bounds::of(root);
    let allowed = value(&status, "Cpus_allowed_list").map_or(0, count_of_list);
    let cores = allowed.min(bounds.cpus.map_or(u32::MAX, |cpus| (cpus.floor() as u32).max(1)));
    let arch = std::env::consts::ARCH.to_owned();
    Ok(HostFacts {
        cpu: value(&cpuinfo, "model name")
            .or_else(|| value(&cpuinfo, "Hardware"))
            .map(str::to_owned)
            .or_else(|| text(root, "proc/device-tree/model"))
            .unwrap_or_else(|| arch.clone()),
        cores,
        memory: kib(&meminfo, "MemTotal").min(bounds.memory.unwrap_or(u64::MAX)),
        arch,
        os: text(root, "etc/os-release")
            .and_then(|release| pretty_name(&release))
            .unwrap_or_else(|| "Linux".to_owned()),
        governor: governors(root),
        smt: text(root, "sys/devices/system/cpu/smt/active").map(|active| active == "1"),
        cgroup: cgroups.version().map_or_else(|| "none".to_owned(), |version| version.to_string()),
        virtualisation: virtualisation(root, &cpuinfo, &kernel),
        swap: kib(&meminfo, "SwapTotal"),
        boot_id: needed("proc/sys/kernel/random/boot_id")?.trim().to_owned(),
        kernel,
    })
}

/// What of the host bears on every number measured on it.
#[must_use]
pub fn flags(host: &HostFacts, cgroups: &Hierarchy) -> Vec<Flag> {
    let mut flags = Vec::new();
    if let Some(why) = cgroups.unenforced() {
        flags.push(Flag::EnvelopeUnenforced { reason: why.to_string() });
    }
    if let Some(governor) = host.governor.as_ref().filter(|governor| *governor != "performance") {
        flags.push(Flag::GovernorNotPerformance { governor: governor.clone() });
    }
    if host.smt == Some(true) {
        flags.push(Flag::SmtOn);
    }
    if let Some(kind) = &host.virtualisation {
        flags.push(Flag::Virtualised { kind: kind.clone() });
    }
    if host.swap > 0 {
        flags.push(Flag::SwapOn { bytes: host.swap });
    }
    flags
}

/// A file's text without surrounding white space and zero bytes; none when it is missing or empty.
pub(crate) fn text(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// The first value of `key` in lines of `key : value`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then(|| value.trim())
    })
}

/// Bytes of a `/proc/meminfo` line; 0 when it is missing.
fn kib(meminfo: &str, key: &str) -> u64 {
    let number = value(meminfo, key).and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

/// How many numbers a list such as `0-3,8` has.
fn count_of_list(list: &str) -> u32 {
    let range = |part: &str| -> Option<u32> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(to.trim().parse::<u32>().ok()?.checked_sub(from.trim().parse().ok()?)? + 1)
    };
    list.split(',').filter_map(range).sum()
}

fn pretty_name(release: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// The governors of all CPUs, normally one.
fn governors(root: &Path) -> Option<String> {
    let cpus = fs::read_dir(root.join("sys/devices/system/cpu")).ok()?;
    let found: BTreeSet<_> = cpus.filter_map(|cpu| text(&cpu.ok()?.path(), "cpufreq/scaling_governor")).collect();
    (!found.is_empty()).then(|| found.into_iter().collect::<Vec<_>>().join(", "))
}

/// Hypervisors by what their firmware tables say.
const FIRMWARE: &[(&str, &str)] = &[
    ("VMware", "vmware"),
    ("innotek", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Microsoft Corporation Virtual Machine", "hyper-v"),
    ("Xen", "xen"),
    ("Parallels", "parallels"),
    ("Apple Virtualization", "apple"),
    ("Amazon EC2", "kvm (EC2)"),
    ("Google", "kvm (GCE)"),
    ("QEMU", "kvm"),
    ("KVM", "kvm"),
];

/// The kind of virtual machine. On x86 the CPU itself says whether there is one, elsewhere firmware and device tree do.
fn virtualisation(root: &Path, cpuinfo: &str, kernel: &str) -> Option<String> {
    if kernel.to_lowercase().contains("microsoft") {
        return Some("wsl".to_owned());
    }
    let x86 = value(cpuinfo, "flags");
    let by_cpu = x86.is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    if x86.is_some() && !by_cpu {
        return None;
    }
    let dmi = |name| text(root, &format!("sys/class/dmi/id/{name}")).unwrap_or_default();
    let product = dmi("product_name");
    let said = format!("{} {product}", dmi("sys_vendor"));
    let known = FIRMWARE.iter().find(|(words, _)| said.contains(words)).map(|(_, kind)| (*kind).to_owned());
    let bare_metal = x86.is_none() && product.contains(".metal");
    known
        .filter(|_| !bare_metal)
        .or_else(|| text(root, "sys/hypervisor/type"))
        .or_else(|| text(root, "proc/device-tree/hypervisor/compatible"))
        .or_else(|| by_cpu.then(|| "unknown hypervisor".to_owned()))
}

/// What the control groups around this process leave it.
#[derive(Debug, Default)]
struct Bounds {
    cpus: Option<f64>,
    memory: Option<u64>,
}

impl Bounds {
    /// The tightest bound of the process's own group and of those around it, at the usual mount points.
    fn of(root: &Path) -> Self {
        let mut bounds = Self::default();
        let groups = text(root, "proc/self/cgroup").unwrap_or_default();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            for controller in controllers.split(',').filter(|name| ["", "cpu", "memory"].contains(name)) {
                let mount = root.join("sys/fs/cgroup").join(controller);
                for group in Path::new(path.trim_start_matches('/')).ancestors() {
                    bounds.tighten(&mount.join(group));
                }
            }
        }
        bounds
    }

    fn tighten(&mut self, group: &Path) {
        let quota = text(group, "cpu.max")
            .or_else(|| Some(format!("{} {}", text(group, "cpu.cfs_quota_us")?, text(group, "cpu.cfs_period_us")?)));
        if let Some((quota, period)) = quota.as_deref().and_then(|quota| quota.split_once(' '))
            && let (Ok(quota), Ok(period)) = (quota.parse::<f64>(), period.parse::<f64>())
            && quota > 0.0
            && period > 0.0
        {
            self.cpus = Some(self.cpus.unwrap_or(f64::INFINITY).min(quota / period));
        }
        let memory = text(group, "memory.max").or_else(|| text(group, "memory.limit_in_bytes"));
        if let Some(memory) = memory.and_then(|memory| memory.parse::<u64>().ok()) {
            self.memory = Some(self.memory.unwrap_or(u64::MAX).min(memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A tree with these files.
    fn tree(files: &[(&str, &str)]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const LAPTOP: &[(&str, &str)] = &[
        (
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Intel(R) Core(TM) i7-1260P\nflags\t\t: fpu vme sse2\n\nprocessor\t: 1\n",
        ),
        ("proc/meminfo", "MemTotal:       32573412 kB\nMemFree: 1 kB\nSwapTotal:       8388604 kB\n"),
        ("proc/self/status", "Name:\tbench\nCpus_allowed:\tffff\nCpus_allowed_list:\t0-11,14\n"),
        ("proc/self/cgroup", "0::/user.slice/user-1000.slice\n"),
        ("proc/sys/kernel/osrelease", "6.12.43+deb13-amd64\n"),
        ("proc/sys/kernel/random/boot_id", "2f0e\n"),
        ("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/smt/active", "1\n"),
        ("sys/class/dmi/id/sys_vendor", "Google\n"),
        ("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
    ];

    const VIRTUAL: &[(&str, &str)] = &[
        ("proc/cpuinfo", "model name\t: AMD EPYC\nflags\t\t: fpu hypervisor sse2\n"),
        ("proc/meminfo", "MemTotal:       25165824 kB\nSwapTotal:       0 kB\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-7\n"),
        ("proc/self/cgroup", "4:memory:/a/b\n1:cpu,cpuacct:/a\n0::/\n"),
        ("proc/sys/kernel/osrelease", "6.1.0\n"),
        ("proc/sys/kernel/random/boot_id", "77aa\n"),
        ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ("sys/class/dmi/id/product_name", "Standard PC (Q35 + ICH9, 2009)\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4294967296\n"),
        ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
    ];

    fn none() -> Hierarchy {
        Hierarchy::none(crate::cgroup::Unenforced::NoController { missing: vec!["cpu"] })
    }

    fn facts(files: &[(&str, &str)]) -> HostFacts {
        detect_at(tree(files).path(), &none()).unwrap()
    }

    #[test]
    fn a_laptop() {
        let host = facts(LAPTOP);
        assert_eq!(host.cpu, "Intel(R) Core(TM) i7-1260P");
        assert_eq!((host.cores, host.memory, host.swap), (13, 32_573_412 << 10, 8_388_604 << 10));
        assert_eq!((host.os.as_str(), host.kernel.as_str()), ("Debian GNU/Linux 13 (trixie)", "6.12.43+deb13-amd64"));
        assert_eq!((host.governor.as_deref(), host.smt), (Some("powersave"), Some(true)));
        assert_eq!(host.virtualisation, None, "a vendor of laptops may also sell machines in a cloud");
        assert_eq!((host.cgroup.as_str(), host.boot_id.as_str()), ("none", "2f0e"));
        let names: Vec<_> = flags(&host, &none()).iter().map(Flag::name).collect();
        assert_eq!(names, ["envelope_unenforced", "governor_not_performance", "smt_on", "swap_on"]);
    }

    #[test]
    fn a_container_in_a_virtual_machine_with_version_1_bounds() {
        let host = facts(VIRTUAL);
        assert_eq!((host.cores, host.memory), (2, 4 << 30), "2.5 CPUs of quota are two whole ones");
        assert_eq!(host.virtualisation.as_deref(), Some("kvm"));
        assert_eq!((host.governor.as_deref(), host.smt, host.swap, host.os.as_str()), (None, None, 0, "Linux"));
    }

    #[test]
    fn version_2_bounds_count_from_every_level() {
        let mut files = LAPTOP.to_vec();
        files.push(("sys/fs/cgroup/user.slice/user-1000.slice/cpu.max", "400000 100000\n"));
        files.push(("sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "1073741824\n"));
        let host = facts(&files);
        assert_eq!((host.cores, host.memory), (4, 1 << 30));
    }

    #[test]
    fn the_hypervisors_flag_is_enough_and_arm_goes_by_firmware() {
        let kind = |cpuinfo: &str, files: &[(&str, &str)], kernel| virtualisation(tree(files).path(), cpuinfo, kernel);
        assert_eq!(kind("flags : hypervisor", &[], "6.1").as_deref(), Some("unknown hypervisor"));
        assert_eq!(kind("flags : hypervisor", &[], "5.15-microsoft-standard-WSL2").as_deref(), Some("wsl"));
        assert_eq!(kind("flags : hypervisor", &[("sys/hypervisor/type", "xen\n")], "6.1").as_deref(), Some("xen"));
        let ec2 = ("sys/class/dmi/id/sys_vendor", "Amazon EC2");
        let arm = "CPU implementer : 0x41";
        assert_eq!(
            kind(arm, &[ec2, ("sys/class/dmi/id/product_name", "c7g.large")], "6.1").as_deref(),
            Some("kvm (EC2)")
        );
        assert_eq!(kind(arm, &[ec2, ("sys/class/dmi/id/product_name", "c7g.metal")], "6.1"), None);
        let tree = ("proc/device-tree/hypervisor/compatible", "linux,kvm\0");
        assert_eq!(kind(arm, &[tree], "6.1").as_deref(), Some("linux,kvm"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let dir = tree(&VIRTUAL[1..]);
        let error = detect_at(dir.path(), &none()).unwrap_err();
        assert!(error.to_string().ends_with("proc/cpuinfo"), "{error}");
    }

    #[test]
    fn this_host_has_facts() {
        let host = detect(&none()).unwrap();
        assert!(host.cores >= 1 && host.memory > 1 << 28 && !host.boot_id.is_empty(), "{host:?}");
    }
}
