//! A Debian root, made on this host with debootstrap where no image of one can be pulled.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use tempfile::NamedTempFile;
use weir_model::digest::Digest;

use crate::runtime::docker::DockerError;

/// The release on a host that is no Debian.
const RELEASE: &str = "bookworm";
/// What no image needs.
const LEFT_OUT: [&str; 6] = [
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./usr/share/doc/*",
    "./usr/share/man/*",
    "./usr/share/locale/*",
    "./dev/*",
];

/// Which root. What is built on the host runs in it, so it is of the host's release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    release: String,
    packages: Vec<String>,
}

impl Root {
    /// The root of this host's release with the packages that the file lists, one a line.
    pub(super) fn read(packages: &Path) -> Result<Self, DockerError> {
        let text = fs::read_to_string(packages).map_err(DockerError::io(format!("read {}", packages.display())))?;
        let packages = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
        let release = release(&fs::read_to_string("/etc/os-release").unwrap_or_default());
        Ok(Self { release, packages: packages.filter(|name| !name.is_empty()).collect() })
    }

    /// What it is made from. Patch levels of its packages are those of the day it is made on.
    pub(super) fn digest(&self) -> Digest {
        Digest::of_json(&serde_json::json!({
            "release": self.release, "packages": self.packages, "arch": std::env::consts::ARCH, "left_out": LEFT_OUT,
        }))
    }

    /// Makes it, as an archive in a temporary file below `scratch`.
    pub(super) fn make(&self, scratch: &Path) -> Result<NamedTempFile, DockerError> {
        let dir = tempfile::Builder::new()
            .prefix("debian-")
            .tempdir_in(scratch)
            .map_err(DockerError::io(format!("make a folder in {}", scratch.display())))?;
        let root = dir.path().join("root");
        let include = format!("--include={}", self.packages.join(","));
        // in a mount namespace of its own: what it mounts goes with it, however it ends
        let mut debootstrap = Command::new("unshare");
        debootstrap.args(["--mount", "debootstrap", "--variant=minbase", &include, &self.release]).arg(&root);
        done(&mut debootstrap, "make a Debian root with debootstrap (as root, package debootstrap)")?;
        let archive = NamedTempFile::new_in(scratch).map_err(DockerError::io("make a temporary file"))?;
        let mut tar = Command::new("tar");
        tar.arg("--numeric-owner").arg("-C").arg(&root);
        tar.args(LEFT_OUT.iter().map(|pattern| format!("--exclude={pattern}")));
        tar.arg("-cf").arg(archive.path()).arg(".");
        done(&mut tar, "pack the Debian root")?;
        Ok(archive)
    }
}

/// Runs a command to its end; the last lines of what it printed are its error.
fn done(command: &mut Command, action: &str) -> Result<(), DockerError> {
    let output = command.output().map_err(DockerError::io(action))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let lines: Vec<&str> = text.trim().lines().collect();
    let said = lines[lines.len().saturating_sub(5)..].join("; ");
    Err(DockerError::io(action)(io::Error::other(format!("{}: {said}", output.status))))
}

/// The code name in an `os-release` of Debian.
fn release(text: &str) -> String {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim_matches('"').to_owned())
    };
    value("VERSION_CODENAME").filter(|_| value("ID").as_deref() == Some("debian")).unwrap_or_else(|| RELEASE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_of_the_hosts_release() {
        assert_eq!(release("ID=debian\nVERSION_CODENAME=trixie\n"), "trixie");
        assert_eq!(release("ID=\"fedora\"\nVERSION_CODENAME=x\n"), RELEASE);
        assert_eq!(release(""), RELEASE);
    }

    #[test]
    fn packages_are_lines_without_comments() {
        let file = NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), "a # because\n\n# b\nc\n").expect("writable");
        let root = Root::read(file.path()).expect("readable");
        assert_eq!(root.packages, ["a", "c"]);
        assert_eq!(root.digest(), root.clone().digest());
        assert_ne!(root.digest(), Root { packages: vec![], ..root.clone() }.digest());
    }
}
