//! The schema of an environment profile.

use serde_json::{Value, json};

use super::{Key, any_text, may, must, name, object, text, whole, word};
use crate::environment::{RegistryKind, RuntimeKind};
use crate::id::Class;

/// `environments/<id>.toml`.
pub(super) fn schema() -> Value {
    object([
        must("schema", json!({ "const": 1 })),
        must("id", name("the file's name")),
        must("class", word::<Class>()),
        must("runtime", word::<RuntimeKind>()),
        must("caveats", text("what a reader must know, shown in its own right")),
        must("envelope_scale", envelope_scale()),
        must("host", host()),
        must("infra", infra()),
        must("noise", object([must("aa_spread", spread())])),
        may("images", object([must("base", image()), must("tools", image())])),
        may("system", object([may("docker_host", any_text("the Docker host that arms run on; empty is this one"))])),
        may("ceiling", object([must("file", text("where measured ceilings are, relative to the profile"))])),
    ])
}

fn image() -> Value {
    object([must("image", text("its name")), may("dockerfile", dockerfile())])
}

fn dockerfile() -> Value {
    text("what it is built from, relative to the profile; without it, the image is pulled")
}

fn envelope_scale() -> Value {
    json!({
        "anyOf": [{ "type": "number", "exclusiveMinimum": 0 }, { "const": "auto" }],
        "description": "share of the reference envelope of 4 CPUs and 16 GiB",
    })
}

fn spread() -> Value {
    json!({
        "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1,
        "description": "how much a control may differ from itself, as a share",
    })
}

fn host() -> Value {
    let cores = json!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 4096 }, { "const": "detect" }] });
    object([
        must("description", text("for people")),
        may("cpu", text("CPU model, or detect")),
        may("cores", cores),
        may("memory", text("such as 128GiB, or detect")),
        may("arch", text("such as x86_64, or detect")),
        may("os", text("operating system, or detect")),
    ])
}

fn infra() -> Value {
    let registry =
        object([must("kind", word::<RegistryKind>()), may("url", text("host:port of a registry of kind url"))]);
    object([
        must("partitions", whole(1, "partitions of the topic")),
        must("broker", service(must("kind", kind(&["kafka", "redpanda"])))),
        must("clickhouse", service(may("kind", kind(&["clickhouse", "chdb"])))),
        must("registry", registry),
    ])
}

fn kind(of: &[&str]) -> Value {
    json!({ "enum": of, "description": "which product" })
}

fn service(kind: Key) -> Value {
    let cap = |about: &str| json!({ "type": ["number", "string"], "description": about });
    let mut service = object([
        kind,
        may("image", text("the image, where containers are used")),
        may("dockerfile", dockerfile()),
        must("cpus", cap("CPUs, or a share of the host such as 50%")),
        must("memory", cap("such as 8GiB, or a share of the host such as 25%")),
        may("docker_host", any_text("the Docker host it runs on; empty is this one")),
    ]);
    service["dependentRequired"] = json!({ "dockerfile": ["image"] });
    service
}
