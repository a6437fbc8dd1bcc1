//! `bench schema`: the JSON Schemas of descriptor, environment and record.

use std::fs;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use weir_model::error::Coded;
use weir_model::schema::SchemaOf;

/// Print the JSON Schema of a kind of file, or write all of them
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// `entrant`, `environment` or `record`; all of them in one object if not said
    what: Option<SchemaOf>,
    /// Write `<kind>.schema.json` of each kind into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "what")]
    out: Option<PathBuf>,
}

/// A schema could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct Unwritable {
    path: PathBuf,
    source: std::io::Error,
}

impl Coded for Unwritable {
    fn code(&self) -> &'static str {
        "schema_write"
    }
}

/// Runs the verb.
///
/// # Errors
/// When a schema cannot be written.
pub fn run(args: &Args) -> Result<(), Box<dyn Coded>> {
    if let Some(folder) = &args.out {
        for kind in SchemaOf::ALL {
            let path = folder.join(format!("{kind}.schema.json"));
            let write = || fs::create_dir_all(folder).and_then(|()| fs::write(&path, format!("{:#}\n", kind.schema())));
            write().map_err(|source| Unwritable { path: path.clone(), source })?;
            eprintln!("{}", path.display());
        }
        return Ok(());
    }
    match args.what {
        Some(kind) => say!("{:#}", kind.schema()),
        None => {
            let all = SchemaOf::ALL.iter().map(|kind| (kind.to_string(), kind.schema())).collect();
            say!("{:#}", serde_json::Value::Object(all));
        }
    }
    Ok(())
}
