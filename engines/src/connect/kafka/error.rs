//! What librdkafka's errors mean for a user.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::error::Error;

/// The error for a user: what failed at which topic, and what to check.
#[must_use]
pub fn explain(what: &str, brokers: &str, error: &KafkaError) -> Error {
    use RDKafkaErrorCode as Code;
    let hint = match error.rdkafka_error_code() {
        Some(Code::AllBrokersDown | Code::BrokerTransportFailure | Code::OperationTimedOut | Code::Resolve) => {
            format!("check that a broker listens at {brokers} and can be reached from here")
        }
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
            "check the topic's name; it must exist before the run".into()
        }
        Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL) => {
            "check user, password and --kafka-option security.protocol=…".into()
        }
        Some(Code::TopicAuthorizationFailed) => "grant the user READ and DESCRIBE on the topic".into(),
        Some(Code::GroupAuthorizationFailed) => "grant the user READ on the consumer group".into(),
        Some(Code::OffsetOutOfRange | Code::AutoOffsetReset) => {
            "the group's offset is no longer in the topic; use another --group-id".into()
        }
        _ => String::new(),
    };
    let text = match error {
        KafkaError::ClientConfig(_, text, key, value) => format!("{text}: {key}={value}"),
        other => other.rdkafka_error_code().map_or_else(|| other.to_string(), |code| code.to_string()),
    };
    Error::source(format!("{what}: {text}"), hint)
}

/// Whether librdkafka goes on by itself after this error.
#[must_use]
pub fn passes(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::OperationTimedOut
            | Code::Resolve
            | Code::RequestTimedOut
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::RebalanceInProgress
            | Code::PartitionEOF
            | Code::PollExceeded
    )
}
