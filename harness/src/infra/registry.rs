//! What the harness asks of a schema registry, whoever runs it: to hold the workload's schema.

use std::time::{Duration, Instant};

use serde::Deserialize;
use ureq::Agent;
use weir_model::error::Coded;

/// Between two attempts at a registry that is coming up.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a schema is not registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The registry does not answer.
    #[error("no schema registry answers at {address}: {source}")]
    Absent {
        /// `host:port`.
        address: String,
        /// The reason.
        source: Box<ureq::Error>,
    },
    /// It refused the schema, or answered something else.
    #[error("the schema registry at {address} answered to a new schema: {answer}")]
    Answer {
        /// `host:port`.
        address: String,
        /// What it answered.
        answer: String,
    },
}

impl Coded for RegisterError {
    fn code(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "registry_absent",
            Self::Answer { .. } => "registry_refused",
        }
    }
}

/// What a registry answers to a schema.
#[derive(Deserialize)]
struct Registered {
    id: u32,
}

/// Registers an Avro schema under a subject at the registry `address` (`host:port`), which is given `patience` to come
/// up, and gives its id.
///
/// # Errors
/// When the registry does not answer in time or refuses the schema.
pub fn register(address: &str, subject: &str, schema: &str, patience: Duration) -> Result<u32, RegisterError> {
    let agent = Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
    let url = format!("http://{address}/subjects/{subject}/versions");
    let body = serde_json::json!({ "schema": schema, "schemaType": "AVRO" }).to_string();
    let deadline = Instant::now() + patience;
    loop {
        let asked = agent.post(&url).header("Content-Type", "application/vnd.schemaregistry.v1+json").send(&body);
        match asked {
            Ok(mut answer) => {
                let text = answer.body_mut().read_to_string().unwrap_or_default();
                let refused = || RegisterError::Answer { address: address.to_owned(), answer: text.clone() };
                return serde_json::from_str(&text).map(|it: Registered| it.id).map_err(|_| refused());
            }
            Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(source) => return Err(RegisterError::Absent { address: address.to_owned(), source: Box::new(source) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::embedded::registry::Registry;

    #[test]
    fn a_schema_gets_an_id_and_nonsense_a_reason() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let registry = Registry::start(&dir.path().join("registry.json")).expect("it serves");
        let address = registry.address().to_string();
        let register = |schema: &str| register(&address, "s-value", schema, Duration::from_secs(5));
        let first = register("\"long\"").expect("a schema");
        assert_eq!(register("\"long\"").expect("the same"), first);
        let error = register("nonsense").expect_err("no schema");
        assert_eq!(error.code(), "registry_refused");
        assert!(error.to_string().contains("error_code"), "{error}");
    }
}
