//! Building and pulling on an engine.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;

use bollard::body_try_stream;
use bollard::query_parameters::{BuildImageOptionsBuilder, CreateImageOptionsBuilder};
use tempfile::NamedTempFile;
use tokio_stream::StreamExt;
use tokio_util::bytes::Bytes;

use super::engine::Engine;
use super::label::CONTENT;
use super::{DockerError, Image};

/// Lines of a failed build that are repeated.
const LINES: usize = 12;
/// Bytes of an archive that are sent at a time.
const CHUNK: usize = 1 << 18;

impl Engine {
    /// Builds the archive `context`, which has a `Dockerfile`, as `image`, and labels it with its `content`.
    ///
    /// # Errors
    /// [`DockerError::Build`] with the last lines of the build.
    pub fn build(
        &self,
        image: &str,
        context: &NamedTempFile,
        args: &BTreeMap<String, String>,
        content: &str,
    ) -> Result<(), DockerError> {
        let args: HashMap<String, String> = args.clone().into_iter().collect();
        let labels = HashMap::from([(CONTENT.to_owned(), content.to_owned())]);
        let options = BuildImageOptionsBuilder::default()
            .dockerfile("Dockerfile")
            .t(image)
            .rm(true)
            .forcerm(true)
            .buildargs(&args)
            .labels(&labels)
            .build();
        let file = File::open(context.path()).map_err(DockerError::io("read the packed image"))?;
        let body = body_try_stream(tokio_stream::iter(chunks(file)));
        let mut said: Vec<String> = Vec::new();
        let failed = self.wait(async {
            let mut lines = self.docker().build_image(options, None, Some(body));
            while let Some(line) = lines.next().await {
                match line {
                    Ok(info) => {
                        said.extend(info.stream.map(|text| text.trim_end().to_owned()).filter(|text| !text.is_empty()));
                        if let Some(error) = info.error_detail {
                            return Some(error.message.unwrap_or_default());
                        }
                    }
                    Err(error) => return Some(error.to_string()),
                }
            }
            None
        });
        match failed {
            None => Ok(()),
            Some(why) => {
                let last = said[said.len().saturating_sub(LINES)..].join("\n");
                Err(DockerError::Build { image: image.to_owned(), what: format!("{why}\n{last}") })
            }
        }
    }

    /// Pulls an image from its registry.
    ///
    /// # Errors
    /// When the registry is not reached or has no such image.
    pub fn pull(&self, image: &str) -> Result<(), DockerError> {
        let options = CreateImageOptionsBuilder::default().from_image(image).build();
        self.ask(format!("pull {image}"), async {
            let mut steps = self.docker().create_image(Some(options), None, None);
            while let Some(step) = steps.next().await {
                step?;
            }
            Ok(())
        })
    }

    /// The image that `reference` means, which must be the one it meant when the sitting began.
    ///
    /// # Errors
    /// [`DockerError::Swapped`] when it is another; when the engine fails.
    pub fn same_image(&self, reference: &str, first: &Image) -> Result<(), DockerError> {
        let now = self.image(reference)?;
        if now.id == first.id {
            return Ok(());
        }
        let (first, now) = (first.id.to_string(), now.id.to_string());
        Err(DockerError::Swapped { image: reference.to_owned(), first, now })
    }
}

/// A file in pieces.
fn chunks(mut file: File) -> impl Iterator<Item = std::io::Result<Bytes>> {
    std::iter::from_fn(move || {
        let mut chunk = vec![0; CHUNK];
        match file.read(&mut chunk) {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                Some(Ok(chunk.into()))
            }
            Err(error) => Some(Err(error)),
        }
    })
}
