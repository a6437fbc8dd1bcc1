//! The REST interface of the registry.

use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::store::{Level, Pick, Refusal, Store};
use super::{RegistryError, Shared};

const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";

type Answer = Result<Value, Failure>;

/// An error as clients of a registry expect it.
struct Failure {
    number: u32,
    message: String,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { number: refusal.number(), message: refusal.to_string() }
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Refused(refusal) => refusal.into(),
            other => Self { number: 50_001, message: other.to_string() },
        }
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        Self { number: 422, message: rejection.body_text() }
    }
}

/// `404` of `40401`; numbers of three digits are statuses themselves.
fn status(number: u32) -> StatusCode {
    let digits = if number >= 1_000 { number / 100 } else { number };
    u16::try_from(digits).ok().and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or_default()
}

fn respond(answer: Answer) -> Response {
    let (status, body) = match answer {
        Ok(body) => (StatusCode::OK, body),
        Err(failure) => (status(failure.number), json!({ "error_code": failure.number, "message": failure.message })),
    };
    let head = [(header::CONTENT_TYPE, CONTENT_TYPE)];
    (status, head, Body::from(body.to_string())).into_response()
}

/// A body that carries a schema.
#[derive(Debug, Deserialize)]
struct Posted {
    schema: String,
    #[serde(rename = "schemaType", default)]
    kind: Option<String>,
}

impl Posted {
    /// The schema, of the one type there is.
    fn avro(self) -> Result<String, Refusal> {
        match self.kind.as_deref() {
            None | Some("AVRO") => Ok(self.schema),
            Some(other) => Err(Refusal::BadSchema(format!("schema type {other} is not supported; AVRO is"))),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Compatibility {
    compatibility: String,
}

#[derive(Debug, Default, Deserialize)]
struct Options {
    #[serde(default, deserialize_with = "flag")]
    deleted: bool,
    #[serde(default, deserialize_with = "flag")]
    permanent: bool,
    #[serde(default, deserialize_with = "flag")]
    verbose: bool,
}

/// `true` however it is capitalised (clients write `True`); everything else is false.
fn flag<'de, D: serde::Deserializer<'de>>(text: D) -> Result<bool, D::Error> {
    String::deserialize(text).map(|text| text.eq_ignore_ascii_case("true"))
}

/// Bodies are JSON under any content type that clients of a registry send.
struct Lenient<T>(T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> axum::extract::FromRequest<S> for Lenient<T> {
    type Rejection = Response;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Response> {
        let bytes = axum::body::Bytes::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        Json::from_bytes(&bytes)
            .map(|Json(value)| Self(value))
            .map_err(|rejection| respond(Err(Failure::from(rejection))))
    }
}

fn pick(text: &str) -> Result<Pick, Refusal> {
    match text {
        "latest" | "-1" => Ok(Pick::Latest),
        number => match number.parse() {
            Ok(number @ 1..) => Ok(Pick::Number(number)),
            _ => Err(Refusal::BadVersion(text.to_owned())),
        },
    }
}

fn level(text: &str) -> Result<Level, Refusal> {
    serde_json::from_value(Value::from(text)).map_err(|_| Refusal::BadLevel(text.to_owned()))
}

fn id(text: &str) -> Result<u32, Failure> {
    text.parse().map_err(|_| Failure { number: 404, message: "HTTP 404 Not Found".into() })
}

/// A handler that only reads.
fn question(shared: &Shared, ask: impl FnOnce(&Store) -> Answer) -> Response {
    respond(shared.read(ask))
}

/// The routes over a shared state.
pub(super) fn routes(shared: Shared) -> Router {
    Router::new()
        .route("/", get(|| async { respond(Ok(json!({}))) }))
        .route("/mode", get(|| async { respond(Ok(json!({ "mode": "READWRITE" }))) }))
        .route("/schemas/types", get(|| async { respond(Ok(json!(["AVRO"]))) }))
        .route("/schemas/ids/{id}", get(schema_by_id))
        .route("/schemas/ids/{id}/schema", get(raw_schema_by_id))
        .route("/schemas/ids/{id}/versions", get(versions_by_id))
        .route("/schemas/ids/{id}/subjects", get(subjects_by_id))
        .route("/subjects", get(subjects))
        .route("/subjects/{subject}", post(lookup).delete(delete_subject))
        .route("/subjects/{subject}/versions", get(versions).post(register))
        .route("/subjects/{subject}/versions/{version}", get(version).delete(delete_version))
        .route("/subjects/{subject}/versions/{version}/schema", get(raw_schema))
        .route("/compatibility/subjects/{subject}/versions", post(compatible_with_all))
        .route("/compatibility/subjects/{subject}/versions/{version}", post(compatible))
        .route("/config", get(global_level).put(set_global_level))
        .route("/config/{subject}", get(subject_level).put(set_subject_level))
        .fallback(|| async { respond(Err(Failure { number: 404, message: "HTTP 404 Not Found".into() })) })
        .with_state(shared)
}

async fn schema_by_id(State(shared): State<Shared>, Path(text): Path<String>) -> Response {
    question(&shared, |store| Ok(json!({ "schema": store.schema(id(&text)?)? })))
}

async fn raw_schema_by_id(State(shared): State<Shared>, Path(text): Path<String>) -> Response {
    question(&shared, |store| raw(store.schema(id(&text)?)?))
}

async fn versions_by_id(State(shared): State<Shared>, Path(text): Path<String>) -> Response {
    question(&shared, |store| {
        let id = id(&text)?;
        store.schema(id)?;
        let uses = store.uses(id).map(|(subject, version)| json!({ "subject": subject, "version": version }));
        Ok(uses.collect())
    })
}

async fn subjects_by_id(State(shared): State<Shared>, Path(text): Path<String>) -> Response {
    question(&shared, |store| {
        let id = id(&text)?;
        store.schema(id)?;
        Ok(store.uses(id).map(|(subject, _)| json!(subject)).collect())
    })
}

async fn subjects(State(shared): State<Shared>, Query(options): Query<Options>) -> Response {
    question(&shared, |store| Ok(json!(store.subjects(options.deleted))))
}

async fn lookup(State(shared): State<Shared>, Path(subject): Path<String>, Lenient(body): Lenient<Posted>) -> Response {
    question(&shared, |store| Ok(json!(store.lookup(&subject, &body.avro()?)?)))
}

async fn delete_subject(
    State(shared): State<Shared>,
    Path(subject): Path<String>,
    Query(options): Query<Options>,
) -> Response {
    let deleted = shared.change(|store| store.delete(&subject, options.permanent));
    respond(deleted.map(|versions| json!(versions)).map_err(Failure::from))
}

async fn versions(State(shared): State<Shared>, Path(subject): Path<String>) -> Response {
    question(&shared, |store| Ok(json!(store.versions(&subject)?)))
}

async fn register(
    State(shared): State<Shared>,
    Path(subject): Path<String>,
    Lenient(body): Lenient<Posted>,
) -> Response {
    let registered = shared.change(|store| store.register(&subject, &body.avro()?));
    respond(registered.map(|id| json!({ "id": id })).map_err(Failure::from))
}

async fn version(State(shared): State<Shared>, Path((subject, version)): Path<(String, String)>) -> Response {
    question(&shared, |store| Ok(json!(store.version(&subject, pick(&version)?)?)))
}

async fn delete_version(State(shared): State<Shared>, Path((subject, version)): Path<(String, String)>) -> Response {
    let deleted = shared.change(|store| store.delete_version(&subject, pick(&version)?));
    respond(deleted.map(|number| json!(number)).map_err(Failure::from))
}

async fn raw_schema(State(shared): State<Shared>, Path((subject, version)): Path<(String, String)>) -> Response {
    question(&shared, |store| raw(&store.version(&subject, pick(&version)?)?.schema))
}

/// A schema as JSON of its own.
fn raw(schema: &str) -> Answer {
    serde_json::from_str(schema).map_err(|error| Failure { number: 50_001, message: error.to_string() })
}

async fn compatible(
    State(shared): State<Shared>,
    Path((subject, version)): Path<(String, String)>,
    Query(options): Query<Options>,
    Lenient(body): Lenient<Posted>,
) -> Response {
    let verdict = |store: &Store| Ok(store.compatible(&subject, Some(pick(&version)?), &body.avro()?)?);
    respond(shared.read(verdict).map(|verdict| compatibility(verdict, options.verbose)))
}

async fn compatible_with_all(
    State(shared): State<Shared>,
    Path(subject): Path<String>,
    Query(options): Query<Options>,
    Lenient(body): Lenient<Posted>,
) -> Response {
    let verdict = |store: &Store| Ok(store.compatible(&subject, None, &body.avro()?)?);
    respond(shared.read(verdict).map(|verdict| compatibility(verdict, options.verbose)))
}

fn compatibility(verdict: Result<(), String>, verbose: bool) -> Value {
    let mut answer = json!({ "is_compatible": verdict.is_ok() });
    if verbose {
        answer["messages"] = verdict.err().into_iter().collect();
    }
    answer
}

async fn global_level(State(shared): State<Shared>) -> Response {
    question(&shared, |store| Ok(json!({ "compatibilityLevel": store.level() })))
}

async fn set_global_level(State(shared): State<Shared>, Lenient(body): Lenient<Compatibility>) -> Response {
    set_level(&shared, None, &body.compatibility)
}

async fn subject_level(State(shared): State<Shared>, Path(subject): Path<String>) -> Response {
    question(&shared, |store| Ok(json!({ "compatibilityLevel": store.own_level(&subject)? })))
}

async fn set_subject_level(
    State(shared): State<Shared>,
    Path(subject): Path<String>,
    Lenient(body): Lenient<Compatibility>,
) -> Response {
    set_level(&shared, Some(&subject), &body.compatibility)
}

fn set_level(shared: &Shared, subject: Option<&str>, text: &str) -> Response {
    let set = shared.change(|store| {
        store.set_level(subject, level(text)?);
        Ok(())
    });
    respond(set.map(|()| json!({ "compatibility": text })).map_err(Failure::from))
}
