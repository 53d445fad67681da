// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bodies that are sent to a server, one after the other, by a thread of their own: those that wait
//! are bounded, and each that is not delivered is counted.

use crate::{Family, NumberPoint, Points};
use anyhow::{ensure, Context};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::Agent;

/// Most bytes that wait for a server; the oldest go first.
const BYTES_MAX: usize = 16 << 20;
/// Most bodies that wait.
const BODIES_MAX: usize = 256;
/// How long a body is of use.
const AGE_MAX: Duration = Duration::from_secs(600);
/// How long connecting, and all of a request, may take.
const CONNECT: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(20);
/// The pause after a server did not take a body, which doubles up to the other one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Where bodies go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    url: String,
    /// Headers besides those of each body.
    headers: Vec<(String, String)>,
}

impl Endpoint {
    /// Fails for what is no such URL.
    pub fn new(
        url: String,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> anyhow::Result<Endpoint> {
        ensure!(
            url.starts_with("http://") || url.starts_with("https://"),
            "{url}: it begins with http:// or https://"
        );
        let parsed = url.parse::<ureq::http::Uri>();
        let parsed = parsed.with_context(|| format!("{url} is no URL"))?;
        ensure!(
            parsed.host().is_some_and(|host| !host.is_empty()),
            "{url}: no host"
        );
        let headers: Vec<(String, String)> = headers.into_iter().collect();
        for (name, value) in &headers {
            // The value may be a secret.
            ensure!(
                name.parse::<ureq::http::HeaderName>().is_ok()
                    && value.parse::<ureq::http::HeaderValue>().is_ok(),
                "the header {name:?} cannot be"
            );
        }
        Ok(Endpoint { url, headers })
    }
}

/// Something to be sent.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// What is sent.
    pub bytes: Vec<u8>,
    /// Parts of the query, besides those of the URL.
    pub query: Vec<(String, String)>,
    /// Headers that say what it is.
    pub headers: Vec<(&'static str, &'static str)>,
}

/// Sends bodies.
#[derive(Debug)]
pub struct Pusher {
    name: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(u64, Instant, Body)>,
    bytes: usize,
    next: u64,
    counts: Counts,
    /// Until when the rest is sent, once no more comes.
    end: Option<Instant>,
}

/// Bodies by their outcome, and attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    sent: u64,
    /// There was no room for them.
    full: u64,
    /// The server does not want them.
    refused: u64,
    /// They were not taken in time.
    late: u64,
    /// Attempts that failed.
    failures: u64,
}

/// What a server answered.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Taken,
    /// It never takes this one.
    Refused(String),
    /// It may take it later: after this time, if it says so.
    Later(String, Option<Duration>),
}

impl Pusher {
    /// Starts the thread. `say` is called when the server begins to fail, and when it does not any
    /// more.
    pub fn start(
        name: &str,
        endpoint: Endpoint,
        say: impl Fn(&str) + Send + 'static,
    ) -> anyhow::Result<Pusher> {
        let shared = Arc::new(Shared::default());
        let sender = Sender {
            name: name.to_owned(),
            agent: agent(),
            endpoint,
            shared: Arc::clone(&shared),
        };
        let thread = Builder::new().name("push".to_owned());
        let thread = thread.spawn(move || sender.run(&say));
        thread.context("cannot start a thread")?;
        Ok(Pusher {
            name: name.to_owned(),
            shared,
        })
    }

    /// Has a body sent; does not wait.
    pub fn push(&self, body: Body) {
        let mut queue = self.shared.lock();
        queue.bytes += body.bytes.len();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back((number, Instant::now(), body));
        while queue.bytes > BYTES_MAX || queue.waiting.len() > BODIES_MAX {
            queue.counts.full += 1;
            queue.pop();
        }
        self.shared.changed.notify_all();
    }

    /// Bodies by their outcome.
    pub fn families(pushers: &[&Pusher]) -> Vec<Family> {
        let states: Vec<(&str, Counts, usize)> = pushers
            .iter()
            .map(|pusher| {
                let queue = pusher.shared.lock();
                (pusher.name.as_str(), queue.counts, queue.bytes)
            })
            .collect();
        let of = |value: fn(&(&str, Counts, usize)) -> u64| {
            let point = |state: &(&str, Counts, usize)| NumberPoint {
                labels: vec![("to".to_owned(), state.0.to_owned())],
                value: value(state) as f64,
            };
            states.iter().map(point).collect()
        };
        let mut dropped = Vec::new();
        for (name, counts, _) in &states {
            let reasons = [
                ("full", counts.full),
                ("refused", counts.refused),
                ("late", counts.late),
            ];
            dropped.extend(reasons.map(|(reason, count)| NumberPoint {
                labels: vec![
                    ("to".to_owned(), (*name).to_owned()),
                    ("reason".to_owned(), reason.to_owned()),
                ],
                value: count as f64,
            }));
        }
        let family = |name: &str, help: &str, unit, points| Family {
            name: format!("nsprobe_push_{name}"),
            help: help.to_owned(),
            unit,
            points,
        };
        vec![
            family(
                "sent",
                "Bodies that a server has taken",
                None,
                Points::Counter(of(|(_, counts, _)| counts.sent)),
            ),
            family(
                "dropped",
                "Bodies that no server has taken",
                None,
                Points::Counter(dropped),
            ),
            family(
                "failures",
                "Attempts to send that failed",
                None,
                Points::Counter(of(|(_, counts, _)| counts.failures)),
            ),
            family(
                "queued",
                "What waits for a server",
                Some("bytes"),
                Points::Gauge(of(|(.., bytes)| *bytes as u64)),
            ),
        ]
    }

    /// Sends the rest, for so long at most; what is left counts as late. A request that is under way
    /// then goes on.
    pub fn end(self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut queue = self.shared.lock();
        queue.end = Some(end);
        self.shared.changed.notify_all();
        while !queue.waiting.is_empty() && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            queue = self.shared.wait(queue, left);
        }
        while !queue.waiting.is_empty() {
            queue.counts.late += 1;
            queue.pop();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something changes, at most so long.
    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>, limit: Duration) -> MutexGuard<'a, Queue> {
        let waited = self.changed.wait_timeout(queue, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Queue {
    fn pop(&mut self) {
        if let Some((.., body)) = self.waiting.pop_front() {
            self.bytes -= body.bytes.len();
        }
    }

    /// Removes the first body, unless it went meanwhile; returns whether it was there.
    fn pop_if(&mut self, number: u64) -> bool {
        let is_first = self
            .waiting
            .front()
            .is_some_and(|(first, ..)| *first == number);
        if is_first {
            self.pop();
        }
        is_first
    }
}

struct Sender {
    name: String,
    agent: Agent,
    endpoint: Endpoint,
    shared: Arc<Shared>,
}

impl Sender {
    fn run(&self, say: &dyn Fn(&str)) {
        let mut pause = PAUSE;
        let mut has_failed = false;
        while let Some((number, body)) = self.next() {
            let answer = self.send(&body);
            let mut queue = self.shared.lock();
            self.shared.changed.notify_all();
            let wait = match answer {
                Answer::Taken => {
                    // One that was dropped meanwhile counts as that.
                    if queue.pop_if(number) {
                        queue.counts.sent += 1;
                    }
                    if std::mem::take(&mut has_failed) {
                        say(&format!("{}: goes on", self.name));
                    }
                    pause = PAUSE;
                    continue;
                }
                Answer::Refused(why) => {
                    if queue.pop_if(number) {
                        queue.counts.refused += 1;
                    }
                    if !std::mem::replace(&mut has_failed, true) {
                        say(&format!("{}: {why}: dropped", self.name));
                    }
                    continue;
                }
                Answer::Later(why, after) => {
                    queue.counts.failures += 1;
                    if !std::mem::replace(&mut has_failed, true) {
                        say(&format!("{}: {why}: tried again", self.name));
                    }
                    // A server that says zero is not asked again and again.
                    after.unwrap_or(pause).max(PAUSE)
                }
            };
            pause = (pause * 2).min(PAUSE_MAX);
            let until = Instant::now() + wait.min(AGE_MAX);
            while queue.end.is_none() && Instant::now() < until {
                let left = until.saturating_duration_since(Instant::now());
                queue = self.shared.wait(queue, left);
            }
            if queue.end.is_some() {
                // Each of the rest is tried once.
                if queue.pop_if(number) {
                    queue.counts.late += 1;
                }
            }
        }
    }

    /// Waits for the next body that is of use; `None` at the end.
    fn next(&self) -> Option<(u64, Body)> {
        let mut queue = self.shared.lock();
        loop {
            let is_over = queue.end.is_some_and(|end| Instant::now() >= end);
            match queue.waiting.front() {
                Some((_, since, _)) if since.elapsed() >= AGE_MAX || is_over => {
                    queue.counts.late += 1;
                    queue.pop();
                }
                Some((number, _, body)) => return Some((*number, body.clone())),
                None if queue.end.is_some() => return None,
                None => queue = self.shared.wait(queue, AGE_MAX),
            }
        }
    }

    fn send(&self, body: &Body) -> Answer {
        let query = body.query.iter();
        let query = query.map(|(name, value)| (name.as_str(), value.as_str()));
        let mut request = self.agent.post(&self.endpoint.url).query_pairs(query);
        for (name, value) in &body.headers {
            request = request.header(*name, *value);
        }
        for (name, value) in &self.endpoint.headers {
            request = request.header(name, value);
        }
        match request.send(&body.bytes[..]) {
            Ok(answer) => {
                let after = answer.headers().get("retry-after");
                let after = after.and_then(|after| after.to_str().ok()?.parse().ok());
                of_status(answer.status().as_u16(), after.map(Duration::from_secs))
            }
            Err(error) => Answer::Later(error.to_string(), None),
        }
    }
}

/// What a status means, as OTLP has it.
fn of_status(status: u16, after: Option<Duration>) -> Answer {
    let why = format!("the server answers with status {status}");
    match status {
        200..=299 => Answer::Taken,
        429 | 502 | 503 | 504 => Answer::Later(why, after),
        _ => Answer::Refused(why),
    }
}

fn agent() -> Agent {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier);
    let agent = Agent::config_builder()
        .tls_config(tls.build())
        // A body is not sent elsewhere.
        .max_redirects(0)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(REQUEST))
        .http_status_as_error(false)
        .user_agent(concat!("nsprobe/", env!("CARGO_PKG_VERSION")))
        .build();
    agent.new_agent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    /// A server that answers with these statuses, and then with the last one.
    fn server(statuses: &'static [&'static str]) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.expect("a connection");
                let mut seen = Vec::new();
                let mut part = [0; 4096];
                // The body ends with an exclamation mark.
                while !seen.ends_with(b"!") {
                    match stream.read(&mut part) {
                        Ok(0) | Err(_) => break,
                        Ok(count) => seen.extend_from_slice(&part[..count]),
                    }
                }
                let status = statuses[number.min(statuses.len() - 1)];
                let reply = format!("HTTP/1.1 {status}\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(reply.as_bytes());
            }
        });
        Endpoint {
            url,
            headers: vec![("X-Scope-OrgID".to_owned(), "a".to_owned())],
        }
    }

    fn body(bytes: usize) -> Body {
        Body {
            bytes: vec![b'!'; bytes],
            ..Body::default()
        }
    }

    fn counts(pusher: &Pusher) -> Counts {
        pusher.shared.lock().counts
    }

    fn is_soon(what: impl Fn() -> bool) -> bool {
        (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            what()
        })
    }

    #[test]
    fn a_server_that_is_busy_is_asked_again_and_one_that_refuses_is_not() {
        let statuses = &[
            "429 Too Many",
            "503 Unavailable",
            "200 OK",
            "500 Internal",
            "200 OK",
        ];
        let pusher = Pusher::start("x", server(statuses), |_| {}).expect("a thread");
        (0..3).for_each(|_| pusher.push(body(1)));
        let wanted = Counts {
            sent: 2,
            refused: 1,
            failures: 2,
            ..Counts::default()
        };
        assert!(
            is_soon(|| counts(&pusher) == wanted),
            "{:?}",
            counts(&pusher)
        );
        assert_eq!(pusher.shared.lock().bytes, 0);
    }

    #[test]
    fn what_waits_for_a_server_that_is_down_is_bounded_and_counted() {
        let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = nobody.local_addr().expect("an address");
        drop(nobody);
        let endpoint = Endpoint {
            url: format!("http://{address}/"),
            headers: Vec::new(),
        };
        let pusher = Pusher::start("x", endpoint, |_| {}).expect("a thread");
        (0..20).for_each(|_| pusher.push(body(1 << 20)));
        let queue = pusher.shared.lock();
        assert_eq!((queue.counts.full, queue.bytes), (4, BYTES_MAX));
        drop(queue);
        let shared = Arc::clone(&pusher.shared);
        pusher.end(Duration::from_secs(5));
        assert_eq!(shared.lock().counts.late, 16);
    }
}
