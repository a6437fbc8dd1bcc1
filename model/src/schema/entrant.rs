//! The schema of a descriptor.

use serde_json::{Value, json};

use super::{any_text, free, knob, link, list, may, must, name, object, positive, size, text, truth, whole, word};
use crate::descriptor::{Affects, BindingConstraint, EntrantStatus};
use crate::id::{Approach, Delivery, Role, WireFormat, WorkloadId};

/// `entrants/<id>/entrant.toml`.
pub(super) fn schema() -> Value {
    object([
        must("schema", json!({ "const": 1 })),
        must("entrant", entrant()),
        must("maintainer", maintainer()),
        must("version", version()),
        may("build", build()),
        may("process", process()),
        must("envelope", envelope()),
        must("guarantees", guarantees()),
        may("env", variables()),
        may("constraints", list(constraint(), 0)),
        must("variants", list(variant(), 1)),
        may("deviations", list(deviation(), 0)),
        may("clickhouse", clickhouse()),
    ])
}

fn entrant() -> Value {
    object([
        must("id", name("the folder's name and the join key of every record")),
        must("name", text("for people")),
        must("homepage", link("its page")),
        must("repo", link("its source")),
        must("licence", text("an SPDX expression, or LicenseRef-… with licence_link")),
        may("licence_link", link("the text of a licence that SPDX does not list")),
        must("vendor", text("who makes it; self is whoever makes this suite")),
        must("kind", text("such as streaming-engine")),
        must("language", list(text("what it is written in"), 1)),
        must("runtime", text("such as native, jvm or cpython")),
        must("status", word::<EntrantStatus>()),
    ])
}

fn maintainer() -> Value {
    let review = object([
        must("date", json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$" })),
        must("link", link("where it was said")),
        must("said", text("what was said")),
        must("done", text("what was done about it")),
    ]);
    object([
        must("who", text("who wrote the arm")),
        must("reviewed_upstream", truth("whether the system's own maintainers have looked at it")),
        may("review", list(review, 0)),
    ])
}

fn version() -> Value {
    object([
        must("command", list(text("program and arguments, run against the artefact that is measured"), 1)),
        must("pinned", text("the version it must say")),
        may("newest", text("the newest release known, where it is not the pinned one")),
        may("artefact", text("the file whose SHA-256 identifies what ran")),
    ])
}

fn build() -> Value {
    let mut build = object([
        may("cargo", text("the package of this workspace that holds its binary")),
        may("bin", text("the binary of that package")),
        may("image", text("the container image")),
        may("dockerfile", text("what the image is built from, in the entrant's folder")),
    ]);
    build["dependentRequired"] = json!({ "cargo": ["bin"], "bin": ["cargo"], "dockerfile": ["image"] });
    build
}

fn process() -> Value {
    object([must("command", list(text("program and arguments, with placeholders"), 1)), may("env", variables())])
}

fn variables() -> Value {
    free(any_text("with placeholders"))
}

fn envelope() -> Value {
    let container = object([
        must("role", word::<Role>()),
        must("name", name("its name")),
        must("cpus", positive("CPUs")),
        must("memory", size()),
        may("gc_log", text("where a JVM writes its collector's log")),
        may("image", text("its image, where it is not the entrant's")),
        may("command", list(text("program and arguments, with placeholders"), 0)),
    ]);
    object([
        must("cpus", positive("CPUs of the data plane")),
        must("memory", size()),
        must("container", list(container, 1)),
    ])
}

fn guarantees() -> Value {
    object([
        must("delivery", word::<Delivery>()),
        must("durability", text("by what, such as offset-commit or checkpoint")),
        must("interval_ms", whole(1, "how often, in milliseconds")),
    ])
}

fn constraint() -> Value {
    object([must("knob", text("the larger")), must("exceeds", text("the smaller")), must("why", text("why"))])
}

fn variant() -> Value {
    let binding = object([
        must("constraint", word::<BindingConstraint>()),
        must("evidence", list(text("names of metrics and facts that show it"), 1)),
        must("sentence", text("why it is this fast and not twice as fast")),
    ]);
    object([
        must("id", name("the variant")),
        must("workloads", list(word::<WorkloadId>(), 1)),
        must("approach", word::<Approach>()),
        may("default", truth("whether it runs when no variant is named; exactly one")),
        must("reports", object([must("wire_format", word::<WireFormat>())])),
        may("knobs", free(knob())),
        must("binding", binding),
    ])
}

fn deviation() -> Value {
    object([
        must("what", text("what is different")),
        must("why", text("why")),
        must("affects", list(word::<Affects>(), 1)),
    ])
}

fn clickhouse() -> Value {
    object([
        must("arm_sql", text("file of statements to run before the arm starts")),
        may("arm_teardown_sql", text("file of statements to run after it")),
        must("attribution_tables", list(text("a table whose inserts are the arm's"), 1)),
    ])
}
