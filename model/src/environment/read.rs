//! From the text of a profile to an [`Environment`].

use std::ops::Range;

use crate::diagnostic::Problems;
use crate::document::{At, Document, Table, number};
use crate::id::{Class, ProfileId};
use crate::units::parse_bytes;

use super::{
    EnvelopeScale, Environment, Host, ImageSource, Images, Infra, RegistryKind, RuntimeKind, Service, ServiceKind,
    Share,
};

/// Reads a profile whose file is called `stem`.
pub(super) fn environment(file: &str, text: &str, stem: &str) -> Result<Environment, Problems> {
    let doc = Document::new(file, text);
    let parsed = doc.parse();
    if !doc.is_sound() {
        return Err(doc.problems());
    }
    let environment = profile(Table::root(&doc, &parsed), stem);
    match (doc.problems(), environment) {
        (problems, Some(environment)) => problems.or(environment),
        (problems, None) => Err(problems),
    }
}

fn profile(root: Table<'_, '_>, stem: &str) -> Option<Environment> {
    root.schema();
    let id = root.parsed::<ProfileId>("id");
    if let Some(id) = &id
        && id.as_str() != stem
    {
        let message = format!("id `{}` is not the name of the file, `{stem}`", id.value);
        root.doc.report("id_not_file", id.span.clone(), message, None);
    }
    let class: Option<At<Class>> = root.word("class");
    let runtime = root.word("runtime");
    let caveats = root.text("caveats");
    let envelope_scale = envelope_scale(&root);
    let host = root.table("host").and_then(host);
    let infra = root.table("infra").and_then(infra);
    if let (Some(class), Some(host)) = (&class, &host) {
        authority(root.doc, class, host, envelope_scale);
    }
    let aa_spread = root.table("noise").and_then(|table| {
        let spread = table.number("aa_spread");
        if let Some(spread) = &spread
            && !(spread.value > 0.0 && spread.value < 1.0)
        {
            let message = format!("`noise.aa_spread` is {}, not a share between 0 and 1", spread.value);
            table.doc.report("bad_share", spread.span.clone(), message, None);
        }
        table.finish();
        spread
    });
    let ceilings = root.maybe_table("ceiling").and_then(|table| {
        let file = table.text("file");
        if let Some(file) = &file
            && file.value.split('/').any(|part| part.is_empty() || part == "..")
        {
            let message = format!("`{}` is not a path below the profile's folder", file.value);
            table.doc.report("bad_path", file.span.clone(), message, None);
        }
        table.finish();
        file
    });
    let images = root.maybe_table("images").map(images);
    let system_host = root.maybe_table("system").and_then(|table| {
        let host = docker_host(&table);
        table.finish();
        host
    });
    let doc = root.doc;
    root.finish();
    let runtime_at = runtime.as_ref().map(|it: &At<RuntimeKind>| it.span.clone()).unwrap_or_default();
    let environment = Environment {
        id: id?.value,
        class: class?.value,
        runtime: runtime?.value,
        caveats: caveats?.value,
        envelope_scale: envelope_scale?,
        host: host?,
        infra: infra?,
        aa_spread: aa_spread?.value,
        ceilings: ceilings.map(|file| file.value),
        images: match images {
            Some(images) => Some(images?),
            None => None,
        },
        system_host,
    };
    contained(doc, &environment, &runtime_at);
    Some(environment)
}

/// What containers need is there, and nothing of it where there are none. What is missing is said of `at`, the runtime.
fn contained(doc: &Document<'_>, environment: &Environment, at: &Range<usize>) {
    let Infra { broker, clickhouse, registry, .. } = &environment.infra;
    let services = [("broker", broker), ("clickhouse", clickhouse)];
    if environment.runtime == RuntimeKind::Process {
        let named = services.iter().any(|(_, it)| it.image.is_some() || it.docker_host.is_some());
        if named || environment.images.is_some() || environment.system_host.is_some() {
            let message = "images and Docker hosts are for `runtime = \"docker\"`".to_owned();
            doc.report("not_in_containers", at.clone(), message, Some("remove them, or run in containers".into()));
        }
        return;
    }
    for (name, _) in services.iter().filter(|(_, it)| it.image.is_none()) {
        let message = format!("`infra.{name}` has no `image`, and runs in a container");
        let hint = "name one, and a `dockerfile` if it is built here";
        doc.report("no_image", at.clone(), message, Some(hint.into()));
    }
    if environment.images.is_none() {
        let message = "there is no `[images]`: the sampler runs in a container of the suite's own image".to_owned();
        let hint = "add `[images.base]` and `[images.tools]`";
        doc.report("no_images", at.clone(), message, Some(hint.into()));
    }
    if *registry == RegistryKind::RedpandaBuiltin && broker.kind != ServiceKind::Redpanda {
        let message = format!("`redpanda-builtin` is the registry of Redpanda, and the broker is `{}`", broker.kind);
        doc.report("bad_registry", at.clone(), message, Some("use `kind = \"embedded\"`".into()));
    }
    let unnamed = services.iter().find(|(_, it)| it.docker_host.is_none());
    if let (Some(system), Some((name, _))) = (&environment.system_host, unnamed) {
        let message = format!("arms run on `{system}` and {name} on this host, for which other hosts have no name");
        doc.report("unreachable_host", at.clone(), message, Some("give it a `docker_host` as well".into()));
    }
}

fn images(table: Table<'_, '_>) -> Option<Images> {
    let source = |key| {
        table.table(key).and_then(|table| {
            let image = table.text("image");
            let dockerfile = table.maybe_text("dockerfile").map(|it| it.value);
            table.finish();
            Some(ImageSource { image: image?.value, dockerfile })
        })
    };
    let (base, tools) = (source("base"), source("tools"));
    table.finish();
    Some(Images { base: base?, tools: tools? })
}

/// An image and what it is built from, if it is named.
fn image(table: &Table<'_, '_>) -> Option<ImageSource> {
    let (image, dockerfile) = (table.maybe_text("image"), table.maybe_text("dockerfile"));
    if image.is_none() && dockerfile.is_some() {
        table.missing("image");
    }
    Some(ImageSource { image: image?.value, dockerfile: dockerfile.map(|it| it.value) })
}

/// A Docker host; an empty name is this host.
fn docker_host(table: &Table<'_, '_>) -> Option<String> {
    table.maybe_text("docker_host").map(|host| host.value).filter(|host| !host.is_empty())
}

/// Authoritative numbers are of a host that is described and of an envelope that does not depend on it.
fn authority(doc: &Document<'_>, class: &At<Class>, host: &Host, scale: Option<EnvelopeScale>) {
    if class.value != Class::Authoritative {
        return;
    }
    let stated = [
        ("cpu", host.cpu.is_some()),
        ("cores", host.cores.is_some()),
        ("memory", host.memory.is_some()),
        ("arch", host.arch.is_some()),
        ("os", host.os.is_some()),
        ("a fixed envelope_scale", scale != Some(EnvelopeScale::Auto)),
    ];
    let lacking: Vec<&str> = stated.into_iter().filter(|(_, stated)| !stated).map(|(what, _)| what).collect();
    if !lacking.is_empty() {
        let message = format!("an authoritative profile states {}; this one does not", lacking.join(", "));
        doc.report("undescribed_authority", class.span.clone(), message, None);
    }
}

/// A positive number, or `"auto"`.
fn envelope_scale(root: &Table<'_, '_>) -> Option<EnvelopeScale> {
    let Some((value, span)) = root.any("envelope_scale") else {
        root.missing("envelope_scale");
        return None;
    };
    let scale = match (value.as_str(), number(value)) {
        (Some("auto"), _) => Some(EnvelopeScale::Auto),
        (_, Some(scale)) if scale > 0.0 && scale.is_finite() => Some(EnvelopeScale::Fixed(scale)),
        _ => None,
    };
    if scale.is_none() {
        let message = "`envelope_scale` is a positive number or \"auto\"".to_owned();
        root.doc.report("bad_scale", span, message, None);
    }
    scale
}

/// A fact of the host, unless it is to be detected.
fn stated(fact: Option<At<String>>) -> Option<At<String>> {
    fact.filter(|fact| fact.value != "detect")
}

fn host(table: Table<'_, '_>) -> Option<Host> {
    let description = table.text("description");
    let text = |key| stated(table.maybe_text(key)).map(|fact| fact.value);
    let (cpu, arch, os) = (text("cpu"), text("arch"), text("os"));
    let cores = match table.any("cores") {
        Some((value, _)) if value.as_str() == Some("detect") => None,
        Some(_) => table.maybe_int("cores"),
        None => None,
    };
    let cores_fit = cores.as_ref().is_none_or(|cores| (1..=4096).contains(&cores.value));
    if let Some(cores) = cores.as_ref().filter(|_| !cores_fit) {
        let message = format!("{} is not a number of CPUs", cores.value);
        table.doc.report("bad_cpus", cores.span.clone(), message, None);
    }
    let memory = stated(table.maybe_text("memory")).map(|text| match parse_bytes(&text) {
        Some(bytes) => bytes,
        None => {
            let message = format!("`{}` is not a size: write it as `16GiB` or `512MiB`", text.value);
            table.doc.report("bad_size", text.span.clone(), message, None);
            0
        }
    });
    table.finish();
    let cores = cores.and_then(|cores| u32::try_from(cores.value).ok());
    Some(Host { description: description?.value, cpu, cores, memory, arch, os })
}

fn infra(table: Table<'_, '_>) -> Option<Infra> {
    let partitions = table.int("partitions");
    let partitions_fit = partitions.as_ref().is_none_or(|it| (1..=10_000).contains(&it.value));
    if let Some(partitions) = partitions.as_ref().filter(|_| !partitions_fit) {
        let message = format!("{} is not a number of partitions", partitions.value);
        table.doc.report("bad_partitions", partitions.span.clone(), message, None);
    }
    let broker = table.table("broker").and_then(|table| {
        let kind = table.word::<ServiceKind>("kind");
        if let Some(kind) = kind.as_ref().filter(|kind| is_clickhouse(kind.value)) {
            table.doc.report("bad_broker", kind.span.clone(), format!("`{}` is not a broker", kind.value), None);
        }
        service(table, kind?.value)
    });
    let clickhouse = table.table("clickhouse").and_then(|table| {
        let kind = table.any("kind").and_then(|_| table.word::<ServiceKind>("kind"));
        if let Some(kind) = kind.as_ref().filter(|kind| !is_clickhouse(kind.value)) {
            table.doc.report("bad_clickhouse", kind.span.clone(), format!("`{}` is no ClickHouse", kind.value), None);
        }
        service(table, kind.map_or(ServiceKind::Clickhouse, |kind| kind.value))
    });
    let mut registry_url = None;
    let registry = table.table("registry").and_then(|table| {
        let kind = table.word::<RegistryKind>("kind");
        registry_url = table.maybe_text("url").map(|url| url.value);
        if kind.as_ref().is_some_and(|kind| kind.value == RegistryKind::Url) != registry_url.is_some() {
            let message = "`url` is where a registry of kind `url` is: `host:port`".to_owned();
            table.doc.report("registry_url", table.span(), message, None);
        }
        table.finish();
        kind
    });
    table.finish();
    Some(Infra {
        partitions: u32::try_from(partitions?.value).ok()?,
        broker: broker?,
        clickhouse: clickhouse?,
        registry: registry?.value,
        registry_url,
    })
}

fn is_clickhouse(kind: ServiceKind) -> bool {
    matches!(kind, ServiceKind::Clickhouse | ServiceKind::Chdb)
}

fn service(table: Table<'_, '_>, kind: ServiceKind) -> Option<Service> {
    let image = image(&table);
    let docker_host = docker_host(&table);
    let cpus = share(&table, "cpus", "a number of CPUs or a share such as `50%`", |text| {
        text.parse().ok().filter(|cpus: &f64| *cpus > 0.0 && cpus.is_finite())
    });
    let memory = share(&table, "memory", "a size such as `8GiB` or a share such as `25%`", |text| {
        parse_bytes(text).filter(|bytes| *bytes > 0)
    });
    table.finish();
    Some(Service { kind, image, cpus: cpus?, memory: memory?, docker_host })
}

/// A cap as a figure or as a share of the host.
fn share<T>(
    table: &Table<'_, '_>,
    key: &'static str,
    wanted: &str,
    figure: impl Fn(&str) -> Option<T>,
) -> Option<Share<T>> {
    let Some((value, span)) = table.any(key) else {
        table.missing(key);
        return None;
    };
    let text = value.as_str().map(str::to_owned).or_else(|| number(value).map(|number| number.to_string()));
    let text = text.unwrap_or_default();
    let percent = || text.strip_suffix('%')?.trim().parse().ok().filter(|it: &f64| *it > 0.0 && *it <= 100.0);
    let share = percent().map(Share::Percent).or_else(|| figure(&text).map(Share::Of));
    if share.is_none() {
        table.doc.report("bad_cap", span, format!("`{key}` is {wanted}"), None);
    }
    share
}
