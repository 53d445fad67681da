// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: `nsprobe agent` measures what its configuration says for as long as it runs, and what it
//! hands out is what the programs did.

use crate::command::{Notes, Running};
use crate::lab::{Lab, Traced};
use crate::oracle::within;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
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

fn write_config(path: &PathBuf, metrics: &str) {
    let text = format!("listen = \"127.0.0.1:0\"\n{metrics}");
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
