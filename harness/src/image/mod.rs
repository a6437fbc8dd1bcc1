//! The images of an environment and of its arms: built from what they are made of, or pulled.
//!
//! An image that is built here carries the digest of everything in it and below it. It is built again when that differs,
//! so an image of the right name that something else made is never taken for ours.

mod context;
mod debian;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir_model::environment::{ImageSource, Images as Declared};

use crate::runtime::docker::{CONTENT, DockerError, Engine, Image};
use crate::setup::Home;
use context::Context;

/// What images can be made of beside the files of their own folder.
#[derive(Debug, Clone)]
pub struct Shelf {
    /// Folder of this workspace's binaries: `weir/bin/NAME` in a Dockerfile.
    pub bins: PathBuf,
    /// The ClickHouse library: `weir/lib/libchdb.so`.
    pub libchdb: PathBuf,
    /// Folder of the broker's jars: `weir/kafka`.
    pub kafka_libs: PathBuf,
    /// Where a root is put together: `weir/debian.tar`.
    pub scratch: PathBuf,
}

impl Shelf {
    /// What stands beside this program and in the cache directory.
    #[must_use]
    pub fn of(bins: &Path, home: &Home) -> Self {
        Self {
            bins: bins.to_path_buf(),
            libchdb: home.libchdb(),
            kafka_libs: home.kafka_libs(),
            scratch: home.root().to_path_buf(),
        }
    }
}

/// The suite's own images on one engine, and the way to more.
#[derive(Debug)]
pub struct Images<'a> {
    engine: &'a Engine,
    shelf: &'a Shelf,
    declared: &'a Declared,
    /// What others are built from.
    pub base: Image,
    /// The `bench` command.
    pub tools: Image,
}

impl<'a> Images<'a> {
    /// Sees to it that the suite's own images are on `engine`; `folder` holds the Dockerfiles of profiles.
    ///
    /// # Errors
    /// When one of them can neither be built nor pulled.
    pub fn prepare(
        engine: &'a Engine,
        shelf: &'a Shelf,
        declared: &'a Declared,
        folder: &Path,
    ) -> Result<Self, DockerError> {
        let mut args = BTreeMap::new();
        let base = ensure(engine, shelf, &declared.base, folder, &args)?;
        args.insert("WEIR_BASE".to_owned(), base.id.to_string());
        let tools = ensure(engine, shelf, &declared.tools, folder, &args)?;
        Ok(Self { engine, shelf, declared, base, tools })
    }

    /// The engine they are on.
    #[must_use]
    pub fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// Sees to it that an image is there: `folder` is where its `dockerfile` is named from.
    ///
    /// # Errors
    /// When it can neither be built nor pulled.
    pub fn ensure(&self, source: &ImageSource, folder: &Path) -> Result<Image, DockerError> {
        if *source == self.declared.tools {
            return Ok(self.tools.clone());
        }
        let args = [("WEIR_BASE", &self.base), ("WEIR_TOOLS", &self.tools)];
        let args = args.into_iter().map(|(name, image)| (name.to_owned(), image.id.to_string())).collect();
        ensure(self.engine, self.shelf, source, folder, &args)
    }
}

fn ensure(
    engine: &Engine,
    shelf: &Shelf,
    source: &ImageSource,
    folder: &Path,
    args: &BTreeMap<String, String>,
) -> Result<Image, DockerError> {
    let there = match engine.image(&source.image) {
        Ok(image) => Some(image),
        Err(DockerError::NoImage { .. }) => None,
        Err(error) => return Err(error),
    };
    let Some(dockerfile) = &source.dockerfile else {
        return match there {
            Some(image) => Ok(image),
            None => {
                eprintln!("pulling image {}", source.image);
                engine.pull(&source.image)?;
                engine.image(&source.image)
            }
        };
    };
    let context = Context::read(&folder.join(dockerfile), &source.image, shelf, args)?;
    let content = context.digest()?.to_string();
    if let Some(image) = there.filter(|image| image.labels.get(CONTENT) == Some(&content)) {
        return Ok(image);
    }
    eprintln!("building image {}", source.image);
    let tar = context.pack(&shelf.scratch)?;
    engine.build(&source.image, &tar, &context.args, &content)?;
    engine.image(&source.image)
}
