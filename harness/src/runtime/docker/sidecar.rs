//! The sampler as a container: it sees the host's control groups, read-only, and nothing else.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use bollard::models::{ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum};
use bollard::query_parameters::AttachContainerOptionsBuilder;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;

use super::DockerError;
use super::engine::Engine;
use super::label::Labels;
use crate::measure::sampler::{Link, SAYS};

/// Where the host's control groups are, on the host and in the container.
const CGROUPS: &str = "/sys/fs/cgroup:/sys/fs/cgroup:ro";
/// A user without rights: a controller mounted below the read-only mount is not writable either.
const NOBODY: &str = "65534:65534";
/// How long a sampler may take to answer or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A sampler in a container of its own.
pub(super) struct Sidecar {
    engine: Engine,
    id: String,
    stdin: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    answers: Receiver<String>,
    reader: JoinHandle<()>,
}

impl std::fmt::Debug for Sidecar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sidecar").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Sidecar {
    /// Starts one on `engine`; its samples are appended to the file `path`.
    pub(super) fn start(engine: &Engine, image: &str, path: &Path) -> Result<Self, DockerError> {
        let open = OpenOptions::new().create(true).append(true).open(path);
        let series = open.map_err(DockerError::io(format!("open {}", path.display())))?;
        let name = format!("weir-sampler-{}", uuid::Uuid::now_v7());
        let id = engine.create(&name, body(image, engine.labels()), &[])?;
        let options = AttachContainerOptionsBuilder::default().stdin(true).stdout(true).stderr(true).stream(true);
        let begun = engine
            .ask("attach to the sampler", engine.docker().attach_container(&id, Some(options.build())))
            .and_then(|attached| {
                engine.ask("start the sampler", engine.docker().start_container(&id, None))?;
                Ok(attached)
            });
        let AttachContainerResults { output, input } = match begun {
            Ok(attached) => attached,
            Err(error) => {
                engine.remove(&id);
                return Err(error);
            }
        };
        let (sender, answers) = channel();
        let reader = engine.spawn(read(output, series, sender));
        Ok(Self { engine: engine.clone(), id, stdin: Some(input), answers, reader })
    }
}

/// What the engine is told: the host's control group namespace, read-only; no network, no rights, no way to write.
fn body(image: &str, labels: &Labels) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec!["bench".into()]),
        cmd: Some(["sampler", "--out", "-"].map(str::to_owned).to_vec()),
        user: Some(NOBODY.into()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        // it ends with the harness, however that ends
        stdin_once: Some(true),
        labels: Some(labels.sitting()),
        host_config: Some(HostConfig {
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::HOST),
            binds: Some(vec![CGROUPS.into()]),
            network_mode: Some("none".into()),
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".into()]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

type Output = Pin<Box<dyn tokio_stream::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;

/// Sorts a sampler's lines into samples, which are kept, and answers; what it complains about goes to stderr.
async fn read(mut output: Output, mut series: std::fs::File, answers: Sender<String>) {
    let mut pending = Vec::new();
    while let Some(Ok(piece)) = output.next().await {
        match piece {
            LogOutput::StdErr { message } => eprint!("sampler: {}", String::from_utf8_lossy(&message)),
            other => pending.extend_from_slice(&other.into_bytes()),
        }
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let done = if line.starts_with(SAYS.as_bytes()) {
                answers.send(String::from_utf8_lossy(&line).into_owned()).is_ok()
            } else {
                series.write_all(&line).is_ok()
            };
            if !done {
                return;
            }
        }
    }
}

impl Link for Sidecar {
    fn tell(&mut self, line: &[u8]) -> std::io::Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        self.engine.wait(async {
            stdin.write_all(line).await?;
            stdin.flush().await
        })
    }

    fn hear(&mut self) -> std::io::Result<String> {
        Ok(self.answers.recv_timeout(PATIENCE).unwrap_or_default())
    }

    fn end(&mut self) -> std::io::Result<()> {
        if let Some(mut stdin) = self.stdin.take() {
            self.engine.wait(stdin.shutdown())?;
            // it writes no more once its output has ended
            let ended = async { tokio::time::timeout(PATIENCE, &mut self.reader).await };
            self.engine.wait(ended).map_err(std::io::Error::other)?.map_err(std::io::Error::other)?;
        }
        Ok(())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.engine.remove(&self.id);
        self.reader.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sees_control_groups_and_can_change_nothing() {
        let body = body("weir-tools", &Labels::of("1-1-s"));
        let host = body.host_config.expect("a host configuration");
        assert_eq!(host.cgroupns_mode, Some(HostConfigCgroupnsModeEnum::HOST));
        assert_eq!(host.binds, Some(vec!["/sys/fs/cgroup:/sys/fs/cgroup:ro".to_owned()]));
        assert_eq!((host.readonly_rootfs, host.network_mode), (Some(true), Some("none".into())));
        assert_eq!(host.cap_drop, Some(vec!["ALL".into()]));
        assert_eq!(body.stdin_once, Some(true));
    }

    #[tokio::test]
    async fn lines_in_pieces_are_sorted_into_samples_and_answers() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("series");
        let out = |text: &str| Ok(LogOutput::StdOut { message: text.to_owned().into() });
        let pieces = [out("{\"a\":1}\nsampler \"do"), out("ne\"\n{\"b\""), out(":2}\n")];
        let (sender, answers) = channel();
        let file = std::fs::File::create(&path).expect("writable");
        read(Box::pin(tokio_stream::iter(pieces)), file, sender).await;
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), ["sampler \"done\"\n"]);
        assert_eq!(std::fs::read_to_string(&path).expect("written"), "{\"a\":1}\n{\"b\":2}\n");
    }
}
