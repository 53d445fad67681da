// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server that Prometheus asks for metrics: `GET /metrics`, one request a connection.

use crate::{exposition, Family, TextFormat};
use anyhow::Context;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Most bytes of a request.
const REQUEST_MAX: usize = 16 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Most connections at a time; others are closed.
const CONNECTIONS_MAX: usize = 8;
/// How long a request may take to come, and its answer to go.
const LIMIT: Duration = Duration::from_secs(5);
/// The pause after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers with the metrics of the moment, until the process ends.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
}

impl MetricsServer {
    /// Listens at this address, and starts a thread that answers. `gather` is called for each
    /// request, by several threads at a time.
    pub fn start(
        address: SocketAddr,
        gather: impl Fn() -> Vec<Family> + Send + Sync + 'static,
    ) -> anyhow::Result<MetricsServer> {
        let listener = TcpListener::bind(address);
        let listener = listener.with_context(|| format!("cannot listen at {address}"))?;
        let address = listener.local_addr()?;
        let gather = Arc::new(gather);
        let thread = Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(move || accept(&listener, &gather));
        thread.context("no thread for /metrics")?;
        Ok(MetricsServer { address })
    }

    /// Where it listens: with the port that it got, should it have been 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn accept<G>(listener: &TcpListener, gather: &Arc<G>)
where
    G: Fn() -> Vec<Family> + Send + Sync + 'static,
{
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // As there are no more files.
            std::thread::sleep(PAUSE);
            continue;
        };
        if open.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Relaxed);
            continue;
        }
        let (gather, own) = (Arc::clone(gather), Arc::clone(&open));
        let answer = move || {
            // The other side is gone, or too slow.
            let _ = answer(stream, &*gather);
            own.fetch_sub(1, Relaxed);
        };
        if Builder::new()
            .name("scrape".to_owned())
            .spawn(answer)
            .is_err()
        {
            open.fetch_sub(1, Relaxed);
        }
    }
}

/// Reads a request, and answers it.
fn answer(mut stream: TcpStream, gather: &dyn Fn() -> Vec<Family>) -> std::io::Result<()> {
    stream.set_write_timeout(Some(LIMIT))?;
    let reply = match read_request(&mut stream)? {
        Request::Metrics(format) => match exposition(gather(), format) {
            Ok(text) => Reply::new("200 OK", format.content_type(), text),
            Err(_) => Reply::text(
                "500 Internal Server Error",
                "the metrics cannot be written\n",
            ),
        },
        Request::Other => Reply::text("404 Not Found", "the metrics are at /metrics\n"),
        Request::Bad => Reply::text("400 Bad Request", "no request that is understood\n"),
    };
    stream.write_all(reply.head().as_bytes())?;
    stream.write_all(reply.body.as_bytes())
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Metrics(TextFormat),
    Other,
    Bad,
}

fn read_request(stream: &mut TcpStream) -> std::io::Result<Request> {
    let until = Instant::now() + LIMIT;
    let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
    while bytes.len() < REQUEST_MAX {
        let left = until.saturating_duration_since(Instant::now());
        // Zero would be no limit.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let count = stream.read(&mut part)?;
        bytes.extend_from_slice(part.get(..count).unwrap_or_default());
        if let Some(request) = parse(&bytes) {
            return Ok(request);
        }
        if count == 0 {
            break;
        }
    }
    Ok(Request::Bad)
}

/// The request that these bytes are; `None` while it is not whole.
fn parse(bytes: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => None,
        Err(_) => Some(Request::Bad),
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.and_then(|path| path.split('?').next());
            let accepts = request.headers.iter();
            let mut accepts = accepts.filter(|one| one.name.eq_ignore_ascii_case("accept"));
            let accept = accepts.next().map(|one| String::from_utf8_lossy(one.value));
            Some(match (request.method, path) {
                (Some("GET"), Some("/metrics")) => {
                    Request::Metrics(TextFormat::accepted(&accept.unwrap_or_default()))
                }
                _ => Request::Other,
            })
        }
    }
}

struct Reply {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Reply {
    fn new(status: &'static str, content_type: &'static str, body: String) -> Reply {
        Reply {
            status,
            content_type,
            body,
        }
    }

    fn text(status: &'static str, body: &str) -> Reply {
        Reply::new(status, "text/plain; charset=utf-8", body.to_owned())
    }

    fn head(&self) -> String {
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NumberPoint, Points};

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it answers");
        reply
    }

    #[test]
    fn metrics_are_answered_and_nothing_else() {
        let gather = || {
            vec![Family {
                name: "up".to_owned(),
                help: "Up".to_owned(),
                unit: None,
                points: Points::Gauge(vec![NumberPoint {
                    labels: Vec::new(),
                    value: 1.0,
                }]),
            }]
        };
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let address = MetricsServer::start(any, gather).expect("it starts");
        let address = address.address();
        let reply = ask(address, "GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        assert!(reply.ends_with("\nup 1.0\n"), "{reply}");
        let open = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
        assert!(ask(address, open).ends_with("# EOF\n"));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "404"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            let reply = ask(address, request);
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
        }
    }

    #[test]
    fn a_request_is_whole_or_waited_for() {
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nAcc"), None);
        assert_eq!(parse(b"\0\0\r\n\r\n"), Some(Request::Bad));
    }
}
