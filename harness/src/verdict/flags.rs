//! What a reader should know about the host and the checkout of a sitting.

use weir_model::environment::HostFacts;
use weir_model::flag::Flag;

/// Flags that every run on this host, from this checkout, carries.
#[must_use]
pub fn of_host(host: &HostFacts, dirty_tree: bool) -> Vec<Flag> {
    let mut flags = Vec::new();
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
    if dirty_tree {
        flags.push(Flag::DirtyTree);
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostFacts {
        HostFacts {
            cpu: "a processor".into(),
            cores: 8,
            memory: 32 << 30,
            arch: "x86_64".into(),
            os: "Linux".into(),
            kernel: "6.18".into(),
            governor: Some("performance".into()),
            smt: Some(false),
            cgroup: "v2".into(),
            virtualisation: None,
            swap: 0,
            boot_id: "00000000-0000-0000-0000-000000000000".into(),
        }
    }

    #[test]
    fn a_host_set_up_for_measuring_has_no_flag() {
        assert_eq!(of_host(&host(), false), []);
        assert_eq!(of_host(&HostFacts { governor: None, smt: None, ..host() }, false), []);
    }

    #[test]
    fn everything_that_disturbs_is_flagged_with_its_figure() {
        let disturbed = HostFacts {
            governor: Some("powersave".into()),
            smt: Some(true),
            virtualisation: Some("kvm".into()),
            swap: 1 << 30,
            ..host()
        };
        let expected = [
            Flag::GovernorNotPerformance { governor: "powersave".into() },
            Flag::SmtOn,
            Flag::Virtualised { kind: "kvm".into() },
            Flag::SwapOn { bytes: 1 << 30 },
            Flag::DirtyTree,
        ];
        assert_eq!(of_host(&disturbed, true), expected);
    }
}
