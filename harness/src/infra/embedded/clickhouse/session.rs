//! Named sessions: a connection kept between requests, with its temporary tables, settings and database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::engine::{Connection, Engine, identifier, literal};
use super::exception::{Exception, codes};
use super::request::SessionRequest;

/// A session that no request is using.
struct Idle {
    connection: Connection,
    expires: Instant,
}

/// Sessions by user and id; `None` while a request uses one.
#[derive(Default)]
pub(super) struct Sessions {
    by_name: Mutex<HashMap<(String, String), Option<Idle>>>,
}

/// A session in use; it goes back when dropped.
pub(super) struct Lease {
    sessions: Arc<Sessions>,
    name: (String, String),
    timeout: Duration,
    connection: Option<Connection>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Option<Idle>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the session asked for, opening it when it is new.
    pub(super) fn lease(
        self: &Arc<Self>,
        engine: &Engine,
        user: &str,
        asked: &SessionRequest,
    ) -> Result<Lease, Exception> {
        let name = (user.to_owned(), asked.id.clone());
        let mut by_name = self.lock();
        let kept = match by_name.get_mut(&name) {
            Some(slot @ Some(_)) => slot.take(),
            Some(None) => {
                let message = format_args!("Session {} is locked by a concurrent client", asked.id);
                return Err(Exception::new(codes::SESSION_IS_LOCKED, message));
            }
            None if asked.check => {
                return Err(Exception::new(codes::SESSION_NOT_FOUND, format_args!("Session {} not found", asked.id)));
            }
            None => None,
        };
        let connection = match kept {
            Some(idle) => idle.connection,
            None => engine.connect(&[])?,
        };
        by_name.insert(name.clone(), None);
        Ok(Lease { sessions: Arc::clone(self), name, timeout: asked.timeout, connection: Some(connection) })
    }

    /// Closes the sessions that have expired, or every idle one.
    pub(super) fn sweep(&self, all: bool) {
        let now = Instant::now();
        let ended: Vec<_> = {
            let mut by_name = self.lock();
            let over = |slot: &Option<Idle>| slot.as_ref().is_some_and(|idle| all || idle.expires <= now);
            let names: Vec<_> = by_name.iter().filter(|(_, slot)| over(slot)).map(|(name, _)| name.clone()).collect();
            names.iter().filter_map(|name| by_name.remove(name)).collect()
        };
        drop(ended);
    }
}

impl Lease {
    /// The session's connection.
    pub(super) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a lease holds its connection until it is dropped")
    }

    /// Puts the request's settings in force and returns what undoes them.
    pub(super) fn apply(&mut self, settings: &[(String, String)]) -> Result<Vec<String>, Exception> {
        let mut undo = Vec::new();
        for (name, value) in settings {
            let (quoted, name) = (identifier(name), literal(name));
            let before = format!("SELECT value FROM system.settings WHERE name = {name} AND changed");
            let was = self.connection().text(&before)?;
            let old = if was.is_empty() { "DEFAULT".to_owned() } else { literal(&was) };
            let set = format!("SET {quoted} = {}", literal(value));
            if let Err(error) = self.connection().execute(set.as_bytes(), "Null", &[]) {
                self.restore(&undo);
                return Err(error);
            }
            undo.insert(0, format!("SET {quoted} = {old}"));
        }
        Ok(undo)
    }

    /// Undoes what [`Lease::apply`] has set.
    pub(super) fn restore(&mut self, undo: &[String]) {
        for statement in undo {
            // A session that cannot be restored must not be used again: it is closed when the lease ends.
            if self.connection().execute(statement.as_bytes(), "Null", &[]).is_err() {
                self.timeout = Duration::ZERO;
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut by_name = self.sessions.lock();
        match self.connection.take() {
            Some(connection) if !self.timeout.is_zero() => {
                by_name.insert(self.name.clone(), Some(Idle { connection, expires: Instant::now() + self.timeout }));
            }
            _ => drop(by_name.remove(&self.name)),
        }
    }
}
