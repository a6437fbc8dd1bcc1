//! The schema of a line of the archive.

use serde_json::{Map, Value, json};

use super::{
    any_text, digest, free, knob, list, may, must, name, object, or_null, positive, text, time, truth, uuid, whole,
    word,
};
use crate::id::{Approach, Class, Delivery, Mode, Role, Trigger, WireFormat, WorkloadId};
use crate::metric::{LatencyOf, Metric};
use crate::record::SCHEMA;

/// A measurement, a retraction, a verdict or a seal.
pub(super) fn schema() -> Value {
    json!({ "oneOf": [measurement(), retraction(), verdict(), seal()] })
}

/// A line of a kind: what all lines have, and the kind's own keys.
fn line(kind: &str, keys: impl IntoIterator<Item = super::Key>) -> Value {
    let all = [
        must("schema", json!({ "type": "integer", "minimum": 1, "maximum": SCHEMA })),
        must("kind", json!({ "const": kind })),
        must("prev", digest()),
    ];
    object(all.into_iter().chain(keys))
}

fn measurement() -> Value {
    line(
        "measurement",
        [
            must("run_id", uuid("the run")),
            must("sitting", uuid("the sitting it belongs to")),
            must("ts", time("when the record was made")),
            must("trigger", word::<Trigger>()),
            must("rep", whole(1, "which repetition")),
            must("reps", whole(1, "of how many")),
            must("order", whole(1, "its place in the order of the sitting")),
            must("aa", truth("whether it is a run of the sitting's control")),
            must("workload", word::<WorkloadId>()),
            must("mode", word::<Mode>()),
            must(
                "status",
                json!({
                    "enum": ["ok", "infra_bound", "saturated", "failed", "unsupported", "not_run"],
                    "description": "how it ended",
                }),
            ),
            must("entrant", entrant()),
            must("approach", word::<Approach>()),
            must("wire_format", word::<WireFormat>()),
            must("guarantees", guarantees()),
            must("knobs", free(knob())),
            must("binding", any_text("why it is this fast and not twice as fast")),
            must("env", env()),
            must("protocol", protocol()),
            must("infra", infra()),
            must("metrics", metrics()),
            may("offered_rows_per_s", positive("sustained mode: rows per second that were offered")),
            may("latency", latency()),
            may("windows", object([must("full", window()), may("plateau", window())])),
            may("series", text("the raw samples, relative to the archive")),
            may("series_digest", digest()),
            may("gates", gates()),
            must("flags", list(flag(), 0)),
            must("note", any_text("why it failed, or empty")),
        ],
    )
}

fn retraction() -> Value {
    line(
        "retraction",
        [
            must("run_id", uuid("the run found wrong")),
            must("env", text("its environment")),
            must("entrant", name("its entrant")),
            must("reason", text("why")),
            may("superseded_by", or_null(uuid("the run that takes its place"))),
            must("ts", time("when")),
        ],
    )
}

fn verdict() -> Value {
    let head = object([must("lines", whole(1, "lines of the file")), must("digest", digest())]);
    line(
        "verdict",
        [
            must("sitting", uuid("the sitting")),
            must("env", text("its environment")),
            must("aa_spread", shares("how far the control differed from itself, as a share, by metric")),
            must(
                "smallest_visible",
                shares("the smallest difference the sitting could have seen, as a share, by metric"),
            ),
            must("flags", list(flag(), 0)),
            may("heads", free(head)),
            must("ts", time("when")),
        ],
    )
}

fn seal() -> Value {
    line("seal", [must("torn_bytes", whole(0, "bytes of the unfinished line before it"))])
}

fn shares(about: &str) -> Value {
    let share = json!({ "type": "number", "minimum": 0 });
    let properties: Map<String, Value> = Metric::ALL.iter().map(|metric| (metric.to_string(), share.clone())).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false, "description": about })
}

fn entrant() -> Value {
    object([
        must("id", name("the entrant")),
        must("variant", name("its variant")),
        must("version", text("as the artefact reported it")),
        may("artefact", digest()),
        may("toolchain", text("what it was built with, where it was built here")),
        may("commit", text("the commit of the suite it was built from, where it was built here")),
    ])
}

fn guarantees() -> Value {
    object([
        must("delivery", word::<Delivery>()),
        must("durability", text("by what")),
        must("interval_ms", whole(1, "how often")),
    ])
}

fn env() -> Value {
    let caps = object([
        must("name", text("the container")),
        must("role", word::<Role>()),
        must("cpus", positive("CPUs asked for")),
        must("memory", whole(1, "bytes asked for")),
        must("swap", whole(0, "bytes of swap allowed; 0 by protocol")),
        must("read_back", truth("whether the running control group gave back exactly these values")),
    ]);
    object([
        must("id", text("the profile on this host")),
        must("profile", name("the profile")),
        must("class", word::<Class>()),
        must("digest", digest()),
        must("envelope_scale", positive("share of the reference envelope")),
        must("host", host()),
        must("envelope", list(caps, 0)),
    ])
}

fn host() -> Value {
    object([
        must("cpu", any_text("CPU model")),
        must("cores", whole(1, "CPUs this suite may use")),
        must("memory", whole(1, "bytes")),
        must("arch", any_text("such as x86_64")),
        must("os", any_text("operating system")),
        must("kernel", any_text("kernel release")),
        must("governor", or_null(any_text("CPU frequency governor, where there is one"))),
        must("smt", or_null(truth("whether sibling hardware threads share cores, where known"))),
        must("cgroup", any_text("control groups: v1 or v2")),
        must("virtualisation", or_null(any_text("kind of virtual machine, or none"))),
        must("swap", whole(0, "bytes")),
        must("boot_id", any_text("identity of the boot")),
    ])
}

fn protocol() -> Value {
    object([
        must("harness_version", whole(1, "version of the protocol; see METHODOLOGY.md")),
        must("dataset_version", text("version of corpus, schema and tables")),
        may("harness_commit", text("the commit of the suite")),
        must("seed", whole(0, "seed of the order of arms")),
        must("batches", whole(1, "messages in the corpus")),
    ])
}

fn infra() -> Value {
    let service = || {
        object([
            must("kind", text("which product")),
            must("version", text("as it reports it")),
            may("image", digest()),
            may("cpus", positive("CPUs it may use, if capped")),
            may("memory", whole(1, "bytes it may use, if capped")),
        ])
    };
    object([
        must("partitions", whole(1, "partitions of the topic")),
        must("broker", service()),
        must("clickhouse", service()),
        must("registry", service()),
        may("ceilings", free(positive("rows per second"))),
    ])
}

fn metrics() -> Value {
    let metric = |metric: &Metric| {
        let measured = object([
            must("value", json!({ "type": "number", "description": metric.doc() })),
            must("unit", json!({ "const": metric.unit() })),
            may("ci95", json!({ "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 })),
            may("n", whole(1, "observations it stands for")),
        ]);
        (metric.to_string(), measured)
    };
    let properties: Map<String, Value> = Metric::ALL.iter().map(metric).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn latency() -> Value {
    let milliseconds = || json!({ "type": "number" });
    object([
        must("of", word::<LatencyOf>()),
        must("p50_ms", milliseconds()),
        must("p90_ms", milliseconds()),
        must("p99_ms", milliseconds()),
        must("p999_ms", milliseconds()),
        must("max_ms", milliseconds()),
        must("hist", text("HDR histogram, V2, compressed, base64")),
    ])
}

fn window() -> Value {
    object([
        must("from", time("its beginning")),
        must("to", time("its end")),
        must("rows", whole(0, "rows that landed")),
    ])
}

fn gates() -> Value {
    let rows = object([must("expected", whole(0, "what it should be")), must("got", whole(0, "what it is"))]);
    object([
        must("rows", rows),
        must("duplicates", whole(0, "rows that landed more than once")),
        must("checked_batches", whole(0, "batches compared with their closed form")),
    ])
}

/// A flag is its name and its figures, which only the suite itself reads.
fn flag() -> Value {
    json!({
        "type": "object",
        "properties": { "flag": { "type": "string", "pattern": "^[a-z_]+$" } },
        "required": ["flag"],
        "additionalProperties": { "type": ["number", "string"] },
    })
}
