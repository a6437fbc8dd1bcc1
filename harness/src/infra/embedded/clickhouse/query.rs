//! Running one request: the statement found in its URL and body, on a connection of its own or its session's.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::runtime::Handle;

use super::body::{RawBody, RequestBody};
use super::engine::{Connection, Engine, identifier};
use super::exception::{Exception, codes};
use super::reply::{Coding, Reply};
use super::request::{Request, form_fields};
use super::session::Sessions;
use super::statement::{self, InsertHead, Statement};

/// Longest statement read from a body; the engine's own `max_query_size` is usually far below.
const MAX_STATEMENT: usize = 64 << 20;
/// An insert's head must be within this many bytes of its body.
const MAX_HEAD: usize = 1 << 20;
/// Format of rows when nothing names one.
const DEFAULT_FORMAT: &str = "TabSeparated";

/// What requests share.
pub(super) struct Shared {
    pub(super) engine: Engine,
    pub(super) sessions: Arc<Sessions>,
}

/// Runs `request` and writes its answer; blocks until done.
pub(super) fn run(shared: &Shared, request: &Request, body: RawBody, mut reply: Reply) {
    let coding = match (request.compress, request.accepts) {
        (true, _) => Coding::Framed,
        (false, Some(encoding)) => Coding::Http(encoding, None),
        (false, None) => Coding::Plain,
    };
    let hold = if request.wait_end_of_query { usize::MAX } else { request.buffer };
    reply.configure(coding, request.compression_level, hold);
    let mut body = match RequestBody::new(body, request.encoding, request.decompress) {
        Ok(body) => body,
        Err(error) => return reply.fail(&body_exception(&error)),
    };
    match answer(shared, request, &mut body, &mut reply) {
        Ok(()) => reply.finish(),
        Err(exception) => {
            body.drain();
            reply.fail(&exception);
        }
    }
}

fn answer(shared: &Shared, request: &Request, body: &mut RequestBody, reply: &mut Reply) -> Result<(), Exception> {
    if request.external {
        return Err(Exception::new(codes::NOT_IMPLEMENTED, "External tables are not supported by this server"));
    }
    let text = Text::read(request, body)?;
    match &request.session {
        None => {
            let mut settings = request.settings.clone();
            if request.read_only && !settings.iter().any(|(name, _)| name == "readonly") {
                settings.push(("readonly".to_owned(), "2".to_owned()));
            }
            let mut connection = shared.engine.connect(&settings)?;
            use_database(&mut connection, request)?;
            text.execute(&shared.engine, &mut connection, request, body, reply)
        }
        Some(asked) => {
            if request.read_only && (text.insert.is_some() || statement::may_write(&text.sql)) {
                let message = format_args!("{}: Cannot execute query in readonly mode", request.user);
                return Err(Exception::new(codes::READONLY, message));
            }
            let mut lease = shared.sessions.lease(&shared.engine, &request.user, asked)?;
            let undo = lease.apply(&request.settings)?;
            let done = use_database(lease.connection(), request)
                .and_then(|()| text.execute(&shared.engine, lease.connection(), request, body, reply));
            lease.restore(&undo);
            done
        }
    }
}

fn use_database(connection: &mut Connection, request: &Request) -> Result<(), Exception> {
    match request.database.as_deref() {
        Some(database) if database != "default" || request.session.is_some() => {
            connection.execute(format!("USE {}", identifier(database)).as_bytes(), "Null", &[]).map(drop)
        }
        _ => Ok(()),
    }
}

/// The statement of a request.
struct Text {
    sql: Vec<u8>,
    /// Set when the rest of the body is data.
    insert: Option<InsertHead>,
}

impl Text {
    /// Puts the statement together: the `query` parameter, then the body, a line end between them.
    fn read(request: &Request, body: &mut RequestBody) -> Result<Self, Exception> {
        let mut sql = request.query.clone().unwrap_or_default().into_bytes();
        if !sql.is_empty() {
            if let Statement::Insert(head) = statement::classify(&sql) {
                return Ok(Self::insert(&sql, head, body));
            }
            if let Some(head) = statement::implied_insert(&sql).filter(|head| head.explicit) {
                return Ok(Self::insert(&sql, head, body));
            }
            sql.push(b'\n');
        }
        loop {
            match statement::classify(&sql) {
                Statement::Insert(head) if head.data < sql.len() => return Ok(Self::insert(&sql, head, body)),
                Statement::Open if sql.len() > MAX_HEAD => {
                    return Err(Exception::new(
                        codes::SYNTAX_ERROR,
                        "Max query size exceeded: the INSERT does not get to its data",
                    ));
                }
                Statement::Query if sql.len() > MAX_STATEMENT => {
                    return Err(Exception::new(codes::SYNTAX_ERROR, "Max query size exceeded"));
                }
                _ => {}
            }
            match body.next().map_err(|error| body_exception(&error))? {
                Some(part) => sql.extend_from_slice(&part),
                None => break,
            }
        }
        if let Statement::Insert(head) = statement::classify(&sql) {
            return Ok(Self::insert(&sql, head, body));
        }
        if statement::classify(&sql) == Statement::Open
            && let Some(head) = statement::implied_insert(&sql)
        {
            return Ok(Self::insert(&sql, head, body));
        }
        if statement::reads_input(&sql) {
            return Err(Exception::new(
                codes::NOT_IMPLEMENTED,
                "INSERT SELECT FROM input() is not supported by this server",
            ));
        }
        if sql.iter().all(u8::is_ascii_whitespace) {
            return Err(Exception::new(
                codes::SYNTAX_ERROR,
                "Syntax error: failed at position 1 (end of query): . Empty query",
            ));
        }
        Ok(Self { sql, insert: None })
    }

    fn insert(sql: &[u8], head: InsertHead, body: &mut RequestBody) -> Self {
        body.unread(&sql[head.data..]);
        Self { sql: Vec::new(), insert: Some(head) }
    }

    fn execute(
        &self,
        engine: &Engine,
        connection: &mut Connection,
        request: &Request,
        body: &mut RequestBody,
        reply: &mut Reply,
    ) -> Result<(), Exception> {
        match &self.insert {
            Some(head) => insert(connection, head, request, body, reply),
            None => query(engine, connection, &self.sql, request, reply),
        }
    }
}

/// Feeds the body to an insert. A body that ends early or cannot be decoded cancels it.
fn insert(
    connection: &mut Connection,
    head: &InsertHead,
    request: &Request,
    body: &mut RequestBody,
    reply: &mut Reply,
) -> Result<(), Exception> {
    let mut insert = connection.insert(&head.head, &head.format, &request.parameters)?;
    let mut taking = true;
    while taking && let Some(part) = body.next().map_err(|error| body_exception(&error))? {
        taking = insert.append(&part);
    }
    let mut progress = insert.finish()?;
    if !taking {
        return Err(Exception::new(codes::STD_EXCEPTION, "The insert ended before its data did"));
    }
    progress.read_rows = progress.written_rows;
    progress.read_bytes = progress.written_bytes;
    progress.result_rows = progress.written_rows;
    progress.result_bytes = progress.written_bytes;
    reply.add_progress(progress);
    Ok(())
}

/// Runs anything else, streaming its rows if it has any.
fn query(
    engine: &Engine,
    connection: &mut Connection,
    sql: &[u8],
    request: &Request,
    reply: &mut Reply,
) -> Result<(), Exception> {
    let default = request.format.as_deref().unwrap_or(DEFAULT_FORMAT);
    let format = statement::output_format(sql);
    let format = engine.format(format.as_deref().unwrap_or(default)).cloned();
    if let Some(mut rows) = connection.rows(sql, default, &request.parameters)? {
        reply.set_format(format);
        while let Some(chunk) = rows.next()? {
            reply.add_progress(chunk.progress());
            if reply.write(Bytes::from_owner(chunk)).is_err() {
                return Ok(());
            }
        }
        return Ok(());
    }
    let output = connection.execute(sql, default, &request.parameters)?;
    reply.add_progress(output.progress());
    if !output.as_ref().is_empty() {
        reply.set_format(format);
        // When the client is gone there is nobody to tell.
        let _ = reply.write(Bytes::from_owner(output));
    }
    Ok(())
}

/// What is wrong with a body, as an exception.
fn body_exception(error: &std::io::Error) -> Exception {
    let code = match error.kind() {
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::TimedOut => codes::CANNOT_READ_ALL_DATA,
        _ => codes::CANNOT_DECOMPRESS,
    };
    Exception::new(code, format_args!("Cannot read the request body: {error}"))
}

/// Reads a whole form body and the fields in it.
pub(super) fn read_form(boundary: &str, body: axum::body::Body, runtime: Handle) -> Result<Form, Exception> {
    let mut body =
        RequestBody::new(RawBody::new(body, runtime), None, false).map_err(|error| body_exception(&error))?;
    let mut bytes = Vec::new();
    while let Some(part) = body.next().map_err(|error| body_exception(&error))? {
        bytes.extend_from_slice(&part);
        if bytes.len() > MAX_STATEMENT {
            return Err(Exception::new(codes::SYNTAX_ERROR, "The form is too large"));
        }
    }
    let (fields, plain) = form_fields(boundary, &bytes)
        .ok_or_else(|| Exception::new(codes::BAD_ARGUMENTS, "The multipart/form-data body cannot be read"))?;
    Ok(Form { fields, plain })
}

/// A form body.
pub(super) struct Form {
    pub(super) fields: Vec<(String, String)>,
    /// No part of it is a file.
    pub(super) plain: bool,
}
