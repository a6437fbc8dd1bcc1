//! A Confluent schema registry: writer schemas by id, and the newest schema of a subject.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::format::avro::Schemas;

/// A registry, with what it has answered so far. Clones share it.
#[derive(Clone)]
pub struct Registry {
    url: Arc<str>,
    authorization: Option<Arc<str>>,
    agent: ureq::Agent,
    known: Arc<Mutex<HashMap<u32, Arc<str>>>>,
}

const TIMEOUT: Duration = Duration::from_secs(15);

impl Registry {
    /// The registry at `http://[user:password@]host:port[/path]`.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let url = url.trim_end_matches('/');
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let authorization =
            credentials.map(|text| format!("Basic {}", crate::connect::clickhouse::base64(text.as_bytes())).into());
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
        Self {
            url: format!("{scheme}://{rest}").into(),
            authorization,
            agent: config.build().into(),
            known: Arc::default(),
        }
    }

    /// The newest schema of a subject: its JSON text.
    ///
    /// # Errors
    /// A sentence that names the registry and what it answered.
    pub fn latest(&self, subject: &str) -> Result<Arc<str>, String> {
        let answer = self.get(&format!("/subjects/{subject}/versions/latest"))?;
        let id = answer.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        let text = self.text(&answer)?;
        if let Some(id) = id {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&text));
        }
        Ok(text)
    }

    fn text(&self, answer: &Value) -> Result<Arc<str>, String> {
        if let Some(kind @ ("JSON" | "PROTOBUF")) = answer.get("schemaType").and_then(Value::as_str) {
            return Err(format!("the schema registry at {} holds a {kind} schema there, not Avro", self.url));
        }
        let text = answer.get("schema").and_then(Value::as_str);
        text.map(Arc::from).ok_or_else(|| format!("the schema registry at {} answered without a schema", self.url))
    }

    fn get(&self, path: &str) -> Result<Value, String> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", &**authorization);
        }
        let mut response = request
            .call()
            .map_err(|error| format!("the schema registry at {} cannot be reached: {error}", self.url))?;
        let status = response.status().as_u16();
        let body = response.body_mut().read_to_string().unwrap_or_default();
        let answer: Option<Value> = serde_json::from_str(&body).ok();
        if status == 200 {
            return answer.ok_or_else(|| format!("the schema registry at {} did not answer with JSON", self.url));
        }
        let message = answer.as_ref().and_then(|answer| answer.get("message")).and_then(Value::as_str);
        let message = message.map_or_else(|| format!("HTTP status {status}"), str::to_owned);
        Err(format!("the schema registry at {} refused {path}: {message}", self.url))
    }
}

impl Schemas for Registry {
    fn schema(&self, id: u32) -> Result<Arc<str>, String> {
        if let Some(text) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(Arc::clone(text));
        }
        let text = self.text(&self.get(&format!("/schemas/ids/{id}"))?)?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&text));
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    /// Answers requests in turn and says what they were.
    fn server(answers: Vec<(u16, &'static str)>) -> (String, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://me:pw@{}", listener.local_addr().unwrap());
        let thread = thread::spawn(move || {
            let mut asked = Vec::new();
            for (status, body) in answers {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(&stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    reader.read_line(&mut head).unwrap();
                }
                assert!(head.to_lowercase().contains("authorization: basic bwu6chc="), "{head}");
                asked.push(head.lines().next().unwrap().to_owned());
                let length = body.len();
                write!(&stream, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
                    .unwrap();
            }
            asked
        });
        (url, thread)
    }

    #[test]
    fn schemas_are_asked_for_once() {
        let (url, thread) = server(vec![
            (200, r#"{"subject":"t-value","version":1,"id":7,"schema":"\"long\""}"#),
            (200, r#"{"schema":"\"int\""}"#),
            (404, r#"{"error_code":40403,"message":"Schema 9 not found"}"#),
        ]);
        let registry = Registry::new(&url);
        assert_eq!(&*registry.latest("t-value").unwrap(), "\"long\"");
        assert_eq!(&*registry.schema(7).unwrap(), "\"long\"");
        assert_eq!(&*registry.schema(8).unwrap(), "\"int\"");
        assert_eq!(&*registry.clone().schema(8).unwrap(), "\"int\"");
        let refused = registry.schema(9).unwrap_err();
        assert!(refused.ends_with("refused /schemas/ids/9: Schema 9 not found"), "{refused}");
        assert!(!refused.contains("pw"));
        assert_eq!(
            thread.join().unwrap(),
            [
                "GET /subjects/t-value/versions/latest HTTP/1.1",
                "GET /schemas/ids/8 HTTP/1.1",
                "GET /schemas/ids/9 HTTP/1.1"
            ]
        );
    }
}
