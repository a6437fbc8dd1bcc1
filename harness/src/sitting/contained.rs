//! An arm as containers.

use std::fs;
use std::io;
use std::path::Path;

use weir_model::descriptor::Container;
use weir_model::id::Role;

use super::arm::{Failed, GRACE, Identified, filled, variables};
use super::docker::Containers;
use super::values::Values;
use crate::runtime::docker::RUN_DIR;
use crate::runtime::{Contained, Service};

/// The data plane of an arm and what starts before it.
///
/// # Errors
/// When its texts cannot be filled in, or an image is no longer what it was when the sitting began.
pub(super) fn services(
    containers: &Containers,
    who: &Identified<'_>,
    values: &Values<'_>,
) -> Result<(Service, Vec<Service>), Failed> {
    let arm = who.planned.arm;
    let data_plane = arm.entrant.data_plane().ok_or_else(|| Failed("its descriptor has no data plane".into()))?;
    let control = arm.control_plane().map(|container| service(containers, who, values, container));
    let control = control.collect::<Result<_, _>>()?;
    Ok((service(containers, who, values, data_plane)?, control))
}

fn service(
    containers: &Containers,
    who: &Identified<'_>,
    values: &Values<'_>,
    container: &Container,
) -> Result<Service, Failed> {
    let arm = who.planned.arm;
    let image = containers.image(arm, &container.name).map_err(|error| Failed(error.to_string()))?;
    let is_data_plane = container.role == Role::DataPlane;
    let process = arm.entrant.process.as_ref().filter(|_| is_data_plane);
    let command = match process.filter(|_| container.command.is_empty()) {
        Some(process) => filled(values, "[process] command", &process.command)?,
        None => filled(values, "[[envelope.container]] command", &container.command)?,
    };
    let own = process.iter().flat_map(|process| &process.env);
    let env = variables(values, arm.entrant.env.iter().chain(own))?;
    let files = rendered(values.run_dir).map_err(|error| Failed(format!("its files cannot be read: {error}")))?;
    let name = if is_data_plane { "sut".to_owned() } else { format!("control-{}", container.name) };
    Ok(Service {
        log: values.run_dir.join(if is_data_plane { "arm.log".to_owned() } else { format!("{name}.log") }),
        name,
        command,
        env,
        dir: values.run_dir.to_path_buf(),
        caps: Some(if is_data_plane { values.caps } else { arm.caps_of(container) }),
        grace: GRACE,
        contained: Some(Contained {
            host: containers.host.clone(),
            alias: container.name.clone(),
            reference: image.reference.clone(),
            image: image.image.id,
            dir: Some(RUN_DIR.to_owned()),
            volumes: vec![],
            publish: vec![],
            files,
        }),
    })
}

/// The files that were rendered for a run, by their path in a container.
fn rendered(run_dir: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    let mut folders = vec![run_dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let below = path.strip_prefix(run_dir).unwrap_or(&path).display().to_string();
                files.push((format!("{RUN_DIR}/{below}"), fs::read(&path)?));
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_files_keep_their_place_below_the_run_folder() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        fs::create_dir(dir.path().join("b")).expect("writable");
        fs::write(dir.path().join("a.sql"), "a").expect("writable");
        fs::write(dir.path().join("b/c.xml"), "c").expect("writable");
        let mut files = rendered(dir.path()).expect("readable");
        files.sort();
        let want = [("/weir/run/a.sql", b"a"), ("/weir/run/b/c.xml", b"c")];
        assert_eq!(files, want.map(|(path, bytes)| (path.to_owned(), bytes.to_vec())));
    }
}
