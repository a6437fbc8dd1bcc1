//! A small blocking client of ClickHouse's HTTP interface, for the harness's own statements.
//!
//! It works against any ClickHouse: the embedded one and a server in a container alike.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use ureq::{Agent, Body, SendBody, http::Response};

/// A client of one server, as one user. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    url: String,
    user: String,
    password: String,
    database: String,
}

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// ClickHouse refused it or failed.
    #[error("{text}")]
    Exception {
        /// ClickHouse's error code, such as 60 for an unknown table; 0 when it gave none.
        code: u32,
        /// Its message.
        text: String,
    },
    /// The server could not be reached or the transfer broke.
    #[error("cannot talk to ClickHouse at {url}")]
    Transport {
        /// The server's URL.
        url: String,
        /// The reason.
        source: Box<ureq::Error>,
    },
    /// The answer could not be read to its end or is not text.
    #[error("cannot read ClickHouse's answer from {url}")]
    Answer {
        /// The server's URL.
        url: String,
        /// The reason.
        source: std::io::Error,
    },
}

impl ClientError {
    /// ClickHouse's error code, if it was ClickHouse that failed.
    #[must_use]
    pub fn exception_code(&self) -> Option<u32> {
        match self {
            Self::Exception { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl weir_model::error::Coded for ClientError {
    fn code(&self) -> &'static str {
        match self {
            Self::Exception { .. } => "clickhouse_exception",
            Self::Transport { .. } => "clickhouse_unreachable",
            Self::Answer { .. } => "clickhouse_answer",
        }
    }
}

impl Client {
    /// A client of the server at `url` (`http://host:port`) as the user `default` without a password.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .proxy(None)
            .build()
            .new_agent();
        Self {
            agent,
            url: url.trim_end_matches('/').to_owned(),
            user: "default".to_owned(),
            password: String::new(),
            database: "default".to_owned(),
        }
    }

    /// The same client as another user.
    #[must_use]
    pub fn with_user(mut self, user: &str, password: &str) -> Self {
        (self.user, self.password) = (user.to_owned(), password.to_owned());
        self
    }

    /// The same client in another database.
    #[must_use]
    pub fn with_database(mut self, database: &str) -> Self {
        database.clone_into(&mut self.database);
        self
    }

    /// The server's URL, `http://host:port`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the server answers.
    #[must_use]
    pub fn ping(&self) -> bool {
        self.agent.get(format!("{}/ping", self.url)).call().is_ok_and(|answer| answer.status() == 200)
    }

    /// Runs a statement and returns its output, tab-separated unless it names a format.
    ///
    /// # Errors
    /// When ClickHouse refuses it, or it cannot be reached.
    pub fn query_text(&self, sql: &str) -> Result<String, ClientError> {
        // Complete output or an exception: it is not sent before the statement has ended.
        let answer = self.send(
            &[("wait_end_of_query", "1")],
            SendBody::from_owned_reader(std::io::Cursor::new(sql.as_bytes().to_vec())),
        )?;
        self.text_of(answer)
    }

    /// Runs a statement for its effect.
    ///
    /// # Errors
    /// As [`Client::query_text`].
    pub fn execute(&self, sql: &str) -> Result<(), ClientError> {
        self.query_text(sql).map(drop)
    }

    /// Runs an `INSERT … FORMAT …` whose data is read from `data`, streamed.
    ///
    /// # Errors
    /// As [`Client::query_text`]; the transfer also breaks when `data` cannot be read.
    pub fn insert(&self, sql: &str, data: impl Read + 'static) -> Result<(), ClientError> {
        let answer = self.send(&[("query", sql)], SendBody::from_owned_reader(data))?;
        self.text_of(answer).map(drop)
    }

    /// Runs a query and hands over its lines one by one, without holding the answer.
    ///
    /// # Errors
    /// As [`Client::query_text`], at once or from the iterator.
    pub fn lines(&self, sql: &str) -> Result<impl Iterator<Item = Result<String, ClientError>> + use<>, ClientError> {
        let answer = self.send(&[], SendBody::from_owned_reader(std::io::Cursor::new(sql.as_bytes().to_vec())))?;
        let url = self.url.clone();
        let reader = BufReader::with_capacity(1 << 16, answer.into_body().into_reader());
        Ok(reader.lines().map(move |line| line.map_err(|source| ClientError::Answer { url: url.clone(), source })))
    }

    fn send(&self, parameters: &[(&str, &str)], body: SendBody<'static>) -> Result<Response<Body>, ClientError> {
        let mut request = self
            .agent
            .post(&self.url)
            .query("database", &self.database)
            .header("X-ClickHouse-User", &self.user)
            .header("X-ClickHouse-Key", &self.password);
        for (name, value) in parameters {
            request = request.query(name, value);
        }
        let answer = request
            .send(body)
            .map_err(|source| ClientError::Transport { url: self.url.clone(), source: Box::new(source) })?;
        if answer.status() == 200 && !answer.headers().contains_key("x-clickhouse-exception-code") {
            return Ok(answer);
        }
        let code =
            answer.headers().get("x-clickhouse-exception-code").and_then(|code| code.to_str().ok()?.parse().ok());
        let text = self.text_of(answer)?;
        Err(ClientError::Exception { code: code.unwrap_or(0), text: text.trim_end().to_owned() })
    }

    fn text_of(&self, answer: Response<Body>) -> Result<String, ClientError> {
        let mut text = String::new();
        answer
            .into_body()
            .into_reader()
            .read_to_string(&mut text)
            .map_err(|source| ClientError::Answer { url: self.url.clone(), source })?;
        Ok(text)
    }
}
