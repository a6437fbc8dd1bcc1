//! Labels by which everything that a sitting made is found again.

use std::collections::HashMap;

use crate::runtime::proctree;

/// Names the harness process and the sitting: `<pid>-<start>-<sitting>`.
pub(super) const OWNER: &str = "io.weir.owner";
/// Names the boot of the host on which that process runs.
pub(super) const BOOT: &str = "io.weir.boot";
/// Digest of everything an image was built from.
pub const CONTENT: &str = "io.weir.content";

/// The labels of one sitting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    owner: String,
    boot: String,
}

impl Labels {
    /// The labels of this process's sitting.
    #[must_use]
    pub fn new(sitting: &str) -> Self {
        Self::of(&format!("{}-{sitting}", proctree::self_name()))
    }

    /// The labels of this owner on this boot of this host.
    #[must_use]
    pub fn of(owner: &str) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { owner: owner.to_owned(), boot: boot.trim().to_owned() }
    }

    /// Who made it.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// As Docker takes them.
    pub(super) fn sitting(&self) -> HashMap<String, String> {
        HashMap::from([(OWNER.to_owned(), self.owner.clone()), (BOOT.to_owned(), self.boot.clone())])
    }

    /// Whether what carries `labels` was left behind: its harness ran on this boot of this host and is gone, or ran
    /// before this host's last boot, which only an engine of this host (`local`) can know.
    pub(super) fn left_behind(&self, labels: &HashMap<String, String>, local: bool) -> bool {
        let (Some(owner), Some(boot)) = (labels.get(OWNER), labels.get(BOOT)) else {
            return false;
        };
        if *boot == self.boot { proctree::is_alive(owner) == Some(false) } else { local }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_left_is_left_behind() {
        let ours = Labels::new("s");
        let dead = Labels::of(&format!("{}-1-s", std::process::id()));
        assert!(!ours.left_behind(&ours.sitting(), true), "its harness lives");
        assert!(ours.left_behind(&dead.sitting(), true));
        assert!(ours.left_behind(&dead.sitting(), false), "the process is looked for on this host");
        let other = Labels { boot: "another".into(), ..dead };
        assert!(ours.left_behind(&other.sitting(), true), "from before the boot");
        assert!(!ours.left_behind(&other.sitting(), false), "another host's harness may live");
        assert!(!ours.left_behind(&HashMap::new(), true), "not ours at all");
    }
}
