//! A local socket that is another host's Docker engine, through the system's own `ssh`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::DockerError;
use super::engine::scratch;

/// Where the other host's engine listens.
const FAR: &str = "/var/run/docker.sock";
/// How long ssh is given to come up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running tunnel; dropping it closes it.
#[derive(Debug)]
pub(super) struct Tunnel {
    ssh: Child,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Tunnel {
    /// Opens a tunnel to the engine of `ssh://[user@]host[:port]`. Keys and hosts are those of the user's ssh.
    pub(super) fn open(address: &str) -> Result<Self, DockerError> {
        let failed = |what: String| DockerError::Tunnel { host: address.to_owned(), what };
        let (dir, socket) = scratch("weir-ssh-").map_err(|error| failed(error.to_string()))?;
        let forward = format!("{}:{FAR}", socket.display());
        let ssh = Command::new("ssh")
            .args(arguments(address, &forward))
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let mut tunnel = Self { ssh, socket, _dir: dir };
        let deadline = Instant::now() + PATIENCE;
        while !tunnel.socket.exists() {
            if let Ok(Some(status)) = tunnel.ssh.try_wait() {
                return Err(failed(format!("ssh ended: {status}")));
            }
            if Instant::now() > deadline {
                return Err(failed("ssh does not come up".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(tunnel)
    }

    /// The near end, as an address of an engine.
    pub(super) fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // one that has ended already cannot be killed
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// What ssh is told: forward the socket, run nothing, ask nothing.
fn arguments(address: &str, forward: &str) -> Vec<String> {
    let options = ["-N", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-L", forward];
    options.iter().map(ToString::to_string).chain(["--".into(), address.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_cannot_become_an_option() {
        let arguments = arguments("ssh://-oProxyCommand=x", "/a:/b");
        let end = arguments.iter().position(|word| word == "--").expect("options end");
        assert_eq!(arguments[end + 1..], ["ssh://-oProxyCommand=x"]);
    }
}
