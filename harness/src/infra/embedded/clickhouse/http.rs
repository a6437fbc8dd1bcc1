//! The HTTP side: routes, authentication, and the hand-over of each request to a thread that blocks on the engine.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use axum::routing::get;
use axum::{Router, extract};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::body::RawBody;
use super::exception::{Exception, codes};
use super::query::{self, Shared};
use super::reply::{Identity, Reply};
use super::request::{Request, form_boundary, query_pairs};

/// A server's state.
pub(super) struct Server {
    pub(super) shared: Shared,
    pub(super) identity: Identity,
    /// Password by user.
    pub(super) users: BTreeMap<String, String>,
}

/// The routes.
pub(super) fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/ping", get(|| async { plain("Ok.\n") }))
        .route("/replicas_status", get(|| async { plain("Ok.\n") }))
        .route("/", get(root).post(root))
        .route("/query", get(root).post(root))
        .fallback(unknown)
        .with_state(server)
}

fn plain(text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert("content-type", HeaderValue::from_static("text/html; charset=UTF-8"));
    response
}

async fn unknown(uri: Uri) -> Response<Body> {
    let path = uri.path();
    let body = format!(
        "There is no handle {path}\n\nUse / or /ping for health checks.\nOr /replicas_status for more sophisticated \
         health checks.\n\nSend queries from your program with POST method or GET /?query=...\n"
    );
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

async fn root(
    State(server): State<Arc<Server>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: extract::Request,
) -> Response<Body> {
    if method != Method::POST && uri.query().is_none_or(str::is_empty) {
        return plain("Ok.\n");
    }
    let (head, answer) = oneshot::channel();
    let body = body.into_body();
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || serve(&server, &Incoming { method, uri, headers }, body, runtime, head));
    answer.await.unwrap_or_else(|_| {
        // The thread ended without an answer: only a panic does that.
        let mut response =
            Response::new(Body::from("Code: 1001. DB::Exception: The request's thread failed. (STD_EXCEPTION)\n"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Bytes of a refused request's body that are read before it is answered, and the time that they are waited for.
const DISCARD: usize = 1 << 20;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// A request's head.
struct Incoming {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

/// Serves one request; blocks.
fn serve(server: &Server, incoming: &Incoming, body: Body, runtime: Handle, head: oneshot::Sender<Response<Body>>) {
    let mut body = Some(body);
    let new_id = || uuid::Uuid::now_v7().to_string();
    match read(server, incoming, &mut body, &runtime) {
        Ok(request) => {
            let query_id = request.query_id.clone().unwrap_or_else(new_id);
            let reply = Reply::new(head, server.identity.clone(), query_id);
            let body = body.unwrap_or_else(Body::empty);
            query::run(&server.shared, &request, RawBody::new(body, runtime), reply);
        }
        Err(exception) => {
            if let Some(body) = body {
                // A client that is still sending when it is refused sees a broken connection, not the refusal.
                let rest = axum::body::to_bytes(body, DISCARD);
                let _ = runtime.block_on(async { tokio::time::timeout(PATIENCE, rest).await });
            }
            Reply::new(head, server.identity.clone(), new_id()).fail(&exception);
        }
    }
}

/// Reads what is asked for and who asks. A form's body is taken and becomes parameters.
fn read(server: &Server, incoming: &Incoming, body: &mut Option<Body>, runtime: &Handle) -> Result<Request, Exception> {
    let mut pairs = query_pairs(incoming.uri.query().unwrap_or_default())?;
    let mut external = false;
    if let Some(boundary) = form_boundary(&incoming.headers)
        && let Some(body) = body.take()
    {
        let form = query::read_form(&boundary, body, runtime.clone())?;
        external = !form.plain;
        pairs.extend(form.fields);
    }
    let mut request = Request::new(&incoming.method, pairs, &incoming.headers)?;
    request.external |= external;
    if server.users.get(&request.user).is_none_or(|password| *password != request.password) {
        let user = &request.user;
        return Err(Exception::new(
            codes::AUTHENTICATION_FAILED,
            format_args!("{user}: Authentication failed: password is incorrect, or there is no user with such name"),
        ));
    }
    Ok(request)
}

/// A listener that has at most so many connections open; further clients wait in the backlog.
pub(super) struct Limited {
    pub(super) listener: TcpListener,
    pub(super) permits: Arc<Semaphore>,
}

impl axum::serve::Listener for Limited {
    type Io = Counted;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        // Without it a small answer waits for the client's delayed acknowledgement; its failure only costs that.
        let _ = stream.set_nodelay(true);
        (Counted { stream, _permit: permit }, address)
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that holds a permit.
pub(super) struct Counted {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Serves until `stop` resolves, then finishes what is under way.
pub(super) async fn serve_until(
    listener: Limited,
    server: Arc<Server>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    // Serving never fails: accept errors are retried inside.
    let _ = axum::serve(listener, router(server)).with_graceful_shutdown(stop).await;
}
