// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: `nsprobe agent` measures what its configuration says for as long as it runs, and what it
//! hands out is what the programs did.

mod churn;

use crate::command::{Notes, Running};
use crate::lab::{Lab, Traced};
use crate::oracle::within;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const LOCALHOST: &str = "127.0.0.1:0";
const READER: &str = include_str!("agent.py");
const FUNCTION: &str = "begins_with_push";

/// An agent that runs, with its configuration; killed with the value.
struct Agent {
    running: Running,
    notes: Notes,
    config: PathBuf,
    address: String,
}

impl Agent {
    /// Starts it with these metrics, and waits until it answers.
    fn start(metrics: &str) -> Agent {
        let _ = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        let config = PathBuf::from(format!("/var/tmp/agent-{}.toml", std::process::id()));
        write_config(&config, metrics);
        let path = config.display().to_string();
        let (running, notes) = Notes::of(&["agent", &path]);
        notes.wait_for("/metrics", LIMIT);
        let text = notes.text();
        let address = text.split("http://").nth(1).expect("an address");
        let address = address.split('/').next().expect("an address").to_owned();
        Agent {
            running,
            notes,
            config,
            address,
        }
    }

    fn configure(&self, metrics: &str) {
        write_config(&self.config, metrics);
        self.signal(Signal::SIGHUP);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.running.pid() as i32);
        kill(pid, signal).expect("it runs");
    }

    /// The lines that Prometheus would scrape now.
    fn scrape(&self) -> Vec<String> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it answers");
        assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
        reply.lines().map(str::to_owned).collect()
    }

    /// The value of a series now.
    fn value(&self, series: &str) -> Option<f64> {
        let lines = self.scrape();
        let mut values = lines.iter().filter_map(|line| line.strip_prefix(series));
        values.next()?.trim().parse().ok()
    }

    fn wait_for(&self, series: &str, value: f64) {
        let mut last = None;
        let is_there = within(LIMIT, || {
            last = self.value(series);
            last == Some(value)
        });
        assert!(is_there, "{series} is {last:?}, not {value}");
    }

    /// Hits of a job by outcome.
    fn outcomes(&self, job: &str) -> f64 {
        let lines = self.scrape();
        let of_job = format!("nsprobe_hits_total{{job=\"{job}\",outcome=");
        let lines = lines.iter().filter(|line| line.starts_with(&of_job));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }

    fn end(self) {
        self.signal(Signal::SIGTERM);
        let ended = self.running.ended();
        assert_eq!(ended.code, 0, "{}", self.notes.text());
        let _ = fs::remove_file(&self.config);
    }
}

fn write_config(path: &Path, metrics: &str) {
    let text = format!("listen = \"{LOCALHOST}\"\n{metrics}");
    fs::write(path, text).expect("/var/tmp can be written");
}

fn metric(name: &str, command: &str, victim: &Traced) -> String {
    let file = victim.file().display();
    let command = format!("{command} {file}:{FUNCTION}");
    format!("[[metric]]\nname = {name:?}\ncommand = {command:?}\n")
}

test! { core, an_agent_counts_what_programs_do_and_reads_its_configuration_anew }
fn an_agent_counts_what_programs_do_and_reads_its_configuration_anew() {
    let lab = Lab::new();
    let mut victim = lab.caller(FUNCTION);
    let calls = metric("calls", "count --by comm", &victim);
    let spread = metric("spread", "hist --of arg1 --by comm", &victim);
    let agent = Agent::start(&format!("{calls}{spread}"));
    let up = |job: &str| format!("nsprobe_job_up{{job=\"{job}\"}}");
    for job in ["calls", "spread"] {
        agent.wait_for(&up(job), 1.0);
    }
    let done = victim.call(1000) as f64;
    let own = "{comm=\"call_in_loop\"";
    assert_eq!(agent.value(&format!("calls_total{own}}}")), Some(done));
    assert_eq!(agent.value(&format!("spread_count{own}}}")), Some(done));
    // Its argument is the number of the call, from 0 on.
    let below = format!("spread_bucket{own},le=\"255.0\"}}");
    let below = agent.value(&below).or_else(|| {
        let below = format!("spread_bucket{own},le=\"255\"}}");
        agent.value(&below)
    });
    assert_eq!(below, Some(256.0));
    assert_eq!(agent.outcomes("calls"), done);
    // A metric that stays counts on; one that goes takes its probes along.
    agent.configure(&format!("{calls}{}", metric("later", "count", &victim)));
    agent.wait_for(&up("later"), 1.0);
    let more = victim.call(10) as f64;
    assert_eq!(agent.value(&format!("calls_total{own}}}")), Some(more));
    assert_eq!(agent.value(&up("spread")), None);
    let label = format!("later_total{{func=\"call_in_loop:{FUNCTION}\"}}");
    assert_eq!(agent.value(&label), Some(10.0));
    agent.configure("metric = 1\n");
    agent.notes.wait_for("the old configuration stays", LIMIT);
    agent.end();
}

/// A server that takes all bodies.
struct Sink {
    address: String,
    bodies: Receiver<(String, Vec<u8>)>,
}

impl Sink {
    fn start() -> Sink {
        let listener = TcpListener::bind(LOCALHOST).expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (sender, bodies) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let sender = sender.clone();
                std::thread::spawn(move || take_bodies(BufReader::new(stream), &sender));
            }
        });
        Sink { address, bodies }
    }

    /// The next body whose path begins so.
    fn wait_for(&self, path: &str) -> (String, Vec<u8>) {
        let until = Instant::now() + LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let body = self.bodies.recv_timeout(left);
            let body = body.unwrap_or_else(|_| panic!("nothing came to {path}"));
            if body.0.starts_with(path) {
                return body;
            }
        }
    }
}

fn take_bodies(mut stream: BufReader<TcpStream>, sender: &Sender<(String, Vec<u8>)>) {
    while let Some(body) = take_body(&mut stream) {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        if sender.send(body).is_err() || stream.get_mut().write_all(reply).is_err() {
            return;
        }
    }
}

/// The path of a request and its body.
fn take_body(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line).ok()?;
        let (name, value) = match line.trim_end() {
            "" => break,
            header => header.split_once(": ")?,
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((path, body))
}

/// What a reader of the published schemas, generated in Python, sees in bodies.
fn read_bodies(bodies: &[(&str, &[u8])]) -> Value {
    let folder = PathBuf::from(format!("/var/tmp/bodies-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("/var/tmp can be written");
    let script = folder.join("agent.py");
    fs::write(&script, READER).expect("it is there");
    let mut command = Command::new("python3");
    command.arg(&script).arg(&folder);
    for (kind, body) in bodies {
        fs::write(folder.join(kind), body).expect("it is there");
    }
    let output = command.output().expect("python3 is in the guest");
    let errors = String::from_utf8_lossy(&output.stderr);
    let _ = fs::remove_dir_all(&folder);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

test! { full, what_is_pushed_has_the_shares_of_the_program, cpus = 2, seconds = 180 }
/// As generated code of the published schemas reads it.
fn what_is_pushed_has_the_shares_of_the_program() {
    let lab = Lab::new();
    let mut victim = lab.caller(FUNCTION);
    let sink = Sink::start();
    let address = &sink.address;
    let calls = metric("calls", "count --by comm", &victim);
    let agent = Agent::start(&format!(
        "{calls}[[profile]]\nname = \"cpu\"\ninterval = \"20s\"\n\
         command = \"profile -F 499 --by comm\"\n\
         [pprof]\nurl = \"http://{address}/ingest\"\n\
         [otlp]\nendpoint = \"http://{address}\"\ninterval = \"2s\"\nprofiles = true\n"
    ));
    agent.wait_for("nsprobe_job_up{job=\"cpu\"}", 1.0);
    agent.wait_for("nsprobe_job_up{job=\"calls\"}", 1.0);
    let done = victim.call(1000);
    let mut shares = Command::new(crate::victim::path("shares"))
        .arg("4000000")
        .spawn()
        .expect("it runs");
    // Of the same seconds: this one is sent first.
    let (_, profiles) = sink.wait_for("/v1development/profiles");
    let (query, pprof) = sink.wait_for("/ingest?name=nsprobe%7Bhost%3D");
    assert!(
        query.contains("&format=pprof&") && query.contains("&sampleRate=499"),
        "{query}"
    );
    let (_, metrics) = sink.wait_for("/v1/metrics");
    let _ = (shares.kill(), shares.wait());
    agent.end();
    let bodies = [
        ("pprof", pprof.as_slice()),
        ("profiles", &profiles),
        ("metrics", &metrics),
    ];
    let read = read_bodies(&bodies);
    println!("{read}");
    let counted = read["metrics"]["calls"]["call_in_loop"].as_f64();
    assert_eq!(counted, Some(done as f64));
    for kind in ["pprof", "profiles"] {
        let samples = |n: u32| read[kind][format!("share_{n}")].as_f64().unwrap_or(0.0);
        let all: f64 = (1..=10).map(samples).sum();
        assert!(all > 200.0, "{read}");
        for n in 1..=10 {
            let (part, truth) = (samples(n) / all, f64::from(n) / 55.0);
            let deviation = (truth * (1.0 - truth) / all).sqrt();
            let is_near = (part - truth).abs() <= 0.01 + 4.0 * deviation;
            assert!(is_near, "{kind} {n}: {part} of {truth} ± {deviation}");
        }
    }
    // Both are of the same samples.
    assert_eq!(read["pprof"], read["profiles"]);
}

test! { full, a_server_that_does_not_answer_harms_nothing_else, seconds = 120 }
/// Connections to it are made, and nothing is read.
fn a_server_that_does_not_answer_harms_nothing_else() {
    let lab = Lab::new();
    let mut victim = lab.caller(FUNCTION);
    let mute = TcpListener::bind(LOCALHOST).expect("a port");
    let address = mute.local_addr().expect("an address");
    let calls = metric("calls", "count --by comm", &victim);
    let agent = Agent::start(&format!(
        "{calls}[[profile]]\nname = \"cpu\"\ninterval = \"1s\"\n\
         [pprof]\nurl = \"http://{address}/ingest\"\n\
         [otlp]\nendpoint = \"http://{address}\"\ninterval = \"1s\"\n"
    ));
    agent.wait_for("nsprobe_job_up{job=\"calls\"}", 1.0);
    let done = victim.call(1000) as f64;
    let own = "calls_total{comm=\"call_in_loop\"}";
    let queued = || agent.value("nsprobe_push_queued_bytes{to=\"otlp_metrics\"}");
    let waits = within(LIMIT, || queued().is_some_and(|bytes| bytes > 2000.0));
    assert!(waits, "{:?}", queued());
    let begun = Instant::now();
    assert_eq!(agent.value(own), Some(done));
    assert!(begun.elapsed() < Duration::from_secs(5));
    let sent = agent.value("nsprobe_push_sent_total{to=\"otlp_metrics\"}");
    assert_eq!(sent, Some(0.0));
    let begun = Instant::now();
    agent.end();
    assert!(begun.elapsed() < Duration::from_secs(25));
}

/// Debian's Prometheus, which scrapes an agent; killed with the value.
struct Prometheus {
    child: Child,
    folder: PathBuf,
}

impl Prometheus {
    const ADDRESS: &'static str = "127.0.0.1:9099";

    fn start(agent: &str) -> Prometheus {
        let folder = PathBuf::from(format!("/var/tmp/prometheus-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("/var/tmp can be written");
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs: [{{job_name: agent, static_configs: [{{targets: ['{agent}']}}]}}]\n"
        );
        fs::write(folder.join("config.yml"), config).expect("it is there");
        let log = File::create(folder.join("log")).expect("it is there");
        let child = Command::new("prometheus")
            .arg(format!(
                "--config.file={}",
                folder.join("config.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address={}", Prometheus::ADDRESS))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus is in the guest");
        Prometheus { child, folder }
    }

    /// The only value of a query, if it has one.
    fn query(&self, query: &str) -> Option<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/query?query={encoded}");
        let reply: Value = serde_json::from_str(&get(Prometheus::ADDRESS, &path)?).ok()?;
        let value = reply["data"]["result"][0]["value"][1].as_str()?;
        value.parse().ok()
    }

    fn wait_for(&self, query: &str, fits: impl Fn(f64) -> bool) -> f64 {
        let mut last = None;
        let is_there = within(LIMIT * 2, || {
            last = self.query(query);
            last.is_some_and(&fits)
        });
        let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        assert!(is_there, "{query} is {last:?}: {}", log());
        last.expect("it is there")
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The body of a reply.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    Some(reply.split_once("\r\n\r\n")?.1.to_owned())
}

test! { full, prometheus_has_the_rate_and_the_quantile_of_the_program, cpus = 2, seconds = 300 }
fn prometheus_has_the_rate_and_the_quantile_of_the_program() {
    const CALLS: u64 = 20;
    let lab = Lab::new();
    let mut victim = lab.caller(FUNCTION);
    let calls = metric("calls", "count --by comm", &victim);
    let spread = metric("spread", "hist --of arg1 --by comm", &victim);
    let agent = Agent::start(&format!("{calls}{spread}"));
    for job in ["calls", "spread"] {
        agent.wait_for(&format!("nsprobe_job_up{{job=\"{job}\"}}"), 1.0);
    }
    let prometheus = Prometheus::start(&agent.address);
    prometheus.wait_for("up", |up| up == 1.0);
    // At an even pace, longer than the window of the rate.
    let (mut done, begun) = (victim.call(CALLS), Instant::now());
    for step in 1..250 {
        let due = begun + Duration::from_millis(100) * step;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        done = victim.call(CALLS);
    }
    let truth = done as f64 / begun.elapsed().as_secs_f64();
    let rate = prometheus.query("rate(calls_total[15s])").expect("a rate");
    println!("{rate} of {truth} calls a second");
    assert!((rate / truth - 1.0).abs() < 0.1);
    prometheus.wait_for("spread_count", |count| count == done as f64);
    // Its argument is the number of the call, from 0 on: each bucket is even, but the last one, which
    // ends behind the greatest number.
    for quantile in [0.1, 0.25, 0.5, 0.75] {
        let query = format!("histogram_quantile({quantile}, spread_bucket)");
        let (value, truth) = (prometheus.query(&query), quantile * CALLS as f64);
        let value = value.expect("a quantile");
        println!("{quantile}: {value} of {truth}");
        assert!((value - truth).abs() <= 1.0);
    }
    agent.end();
}
