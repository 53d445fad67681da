// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe agent`, and the file that says what it does.

use super::plan::{
    AgentConfig, AgentPlan, Aggregate, AggregatePlan, BeltsPlan, MetricPlan, OutputsPlan,
    ProfilePlan, RecordingPlan,
};
use super::value::{bytes, time_span};
use super::Plan;
use anyhow::{bail, ensure, Context};
use clap::Args;
use nsprobe_telemetry::{Endpoint, METRICS_PATH, PROFILES_PATH};
use nsprobe_text::escaped;
use nsprobe_trace::options::{TargetSpec, TraceOptions};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Least memory that the agent may have, in bytes.
const MEMORY_MIN: u64 = 32 << 20;
/// Fewest bytes that the files of a recording may have.
const BYTES_MIN: u64 = 4 << 20;
/// How often something is sent.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe agent /etc/nsprobe/agent.toml",
    after_long_help = "It ends at SIGTERM, and reads CONFIG anew at SIGHUP. docs/agent.md says what can be in it.\n\n\
                  Examples:\n  \
                  nsprobe agent --check /etc/nsprobe/agent.toml\n  \
                  nsprobe agent /etc/nsprobe/agent.toml"
)]
pub(super) struct AgentArguments {
    /// What to measure, and where it goes (docs/agent.md)
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Only say whether CONFIG is right
    #[arg(long)]
    check: bool,
}

impl AgentArguments {
    pub(super) fn plan(self) -> AgentPlan {
        AgentPlan {
            config: self.config,
            check: self.check,
        }
    }
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    listen: Option<SocketAddr>,
    #[serde(default)]
    metric: Vec<MetricEntry>,
    #[serde(default)]
    profile: Vec<ProfileEntry>,
    #[serde(default)]
    recording: Vec<RecordingEntry>,
    pprof: Option<PprofEntry>,
    otlp: Option<OtlpEntry>,
    belts: Option<BeltsEntry>,
}

/// What the agent may take.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BeltsEntry {
    cpu_percent: Option<f64>,
    memory: Option<String>,
}

/// A metric of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricEntry {
    name: String,
    help: Option<String>,
    command: String,
}

/// A profile of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileEntry {
    name: String,
    #[serde(default = "usual_profile")]
    command: String,
    #[serde(default = "usual_profile_interval")]
    interval: String,
}

/// A recording of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordingEntry {
    name: String,
    command: String,
    directory: PathBuf,
    #[serde(default = "usual_rotation")]
    rotate: String,
    #[serde(default = "usual_bytes")]
    max_bytes: String,
    #[serde(default = "usual_age")]
    max_age: String,
}

fn usual_rotation() -> String {
    "10m".to_owned()
}

fn usual_bytes() -> String {
    "1G".to_owned()
}

fn usual_age() -> String {
    "7d".to_owned()
}

/// Where pprof's profiles go.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PprofEntry {
    url: String,
    #[serde(default = "usual_application")]
    application: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// A collector of OpenTelemetry's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OtlpEntry {
    endpoint: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default = "usual_metrics_interval")]
    interval: String,
    #[serde(default = "yes")]
    metrics: bool,
    #[serde(default)]
    profiles: bool,
}

fn yes() -> bool {
    true
}

fn usual_profile() -> String {
    "profile -F 19 --by container,comm".to_owned()
}

fn usual_profile_interval() -> String {
    "15s".to_owned()
}

fn usual_metrics_interval() -> String {
    "60s".to_owned()
}

fn usual_application() -> String {
    "nsprobe".to_owned()
}

impl AgentConfig {
    /// Reads a configuration.
    pub(crate) fn read(path: &Path) -> anyhow::Result<AgentConfig> {
        let shown = escaped(path.as_os_str().as_encoded_bytes()).to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        AgentConfig::of_text(&text).with_context(|| shown)
    }

    fn of_text(text: &str) -> anyhow::Result<AgentConfig> {
        let file: ConfigFile = toml::from_str(text)?;
        let mut names = BTreeSet::new();
        let mut check = |name: &str| {
            ensure!(
                is_metric_name(name),
                "name {name:?}: a name has letters, digits and _, and no digit in front"
            );
            ensure!(
                !name.starts_with("nsprobe_"),
                "name {name:?}: names with nsprobe_ in front are the agent's own"
            );
            ensure!(
                names.insert(name.to_owned()),
                "there are two called {name:?}"
            );
            Ok(())
        };
        let mut metrics = Vec::new();
        for entry in file.metric {
            check(&entry.name)?;
            let name = entry.name.clone();
            metrics.push(entry.plan().with_context(|| format!("metric {name:?}"))?);
        }
        let mut profiles = Vec::new();
        for entry in file.profile {
            check(&entry.name)?;
            let name = entry.name.clone();
            profiles.push(entry.plan().with_context(|| format!("profile {name:?}"))?);
        }
        let mut recordings = Vec::new();
        for entry in file.recording {
            check(&entry.name)?;
            let name = entry.name.clone();
            recordings.push(
                entry
                    .plan()
                    .with_context(|| format!("recording {name:?}"))?,
            );
        }
        let mut outputs = OutputsPlan {
            pprof: file
                .pprof
                .map(PprofEntry::plan)
                .transpose()
                .context("pprof")?,
            ..OutputsPlan::default()
        };
        if let Some(entry) = file.otlp {
            entry.add_to(&mut outputs).context("otlp")?;
        }
        ensure!(
            !(metrics.is_empty() && profiles.is_empty() && recordings.is_empty()),
            "there is nothing to do: add a [[metric]], [[profile]] or [[recording]] (docs/agent.md)"
        );
        ensure!(
            profiles.is_empty() || outputs.pprof.is_some() || outputs.otlp_profiles.is_some(),
            "there is no [pprof] that the profiles go to, nor an [otlp] with `profiles = true` \
             (docs/agent.md)"
        );
        ensure!(
            metrics.is_empty() || file.listen.is_some() || outputs.otlp_metrics.is_some(),
            "nothing gets the metrics: add `listen` or [otlp] (docs/agent.md)"
        );
        let belts = file.belts.map(BeltsEntry::plan).transpose();
        Ok(AgentConfig {
            belts: belts.context("belts")?.unwrap_or_default(),
            listen: file.listen,
            metrics,
            profiles,
            recordings,
            outputs,
        })
    }
}

impl MetricEntry {
    fn plan(self) -> anyhow::Result<MetricPlan> {
        let counted = counted(&self.command)?;
        ensure!(
            !matches!(counted.what, Aggregate::Stacks { .. }),
            "command: a metric is a `count` or a `hist`"
        );
        Ok(MetricPlan {
            help: self
                .help
                .unwrap_or_else(|| format!("nsprobe {}", self.command)),
            name: self.name,
            counted,
        })
    }
}

impl ProfileEntry {
    fn plan(self) -> anyhow::Result<ProfilePlan> {
        let counted = counted(&self.command)?;
        ensure!(
            matches!(counted.what, Aggregate::Stacks { .. }),
            "command: a profile is a `profile` or `stacks`"
        );
        Ok(ProfilePlan {
            interval: interval(&self.interval)?,
            name: self.name,
            command: self.command,
            counted,
        })
    }
}

impl BeltsEntry {
    fn plan(self) -> anyhow::Result<BeltsPlan> {
        let usual = BeltsPlan::default();
        let memory = self.memory.as_deref().map(bytes).transpose();
        let plan = BeltsPlan {
            cpu_percent: self.cpu_percent.unwrap_or(usual.cpu_percent),
            memory_bytes: memory
                .map_err(|why| anyhow::anyhow!("memory: {why}"))?
                .unwrap_or(usual.memory_bytes),
        };
        ensure!(plan.cpu_percent > 0.0, "cpu_percent: more than 0");
        ensure!(
            plan.memory_bytes >= MEMORY_MIN,
            "memory: at least {} MB",
            MEMORY_MIN >> 20
        );
        Ok(plan)
    }
}

impl RecordingEntry {
    fn plan(self) -> anyhow::Result<RecordingPlan> {
        let words = words(&self.command)?;
        let plan = plan_of(words.into_iter().chain(["-o", "FILE"].map(str::to_owned)))?;
        let Plan::Record(record) = plan else {
            bail!("command: it begins with `record`");
        };
        let trace = &record.trace;
        refuse(&trace.options)?;
        ensure!(
            trace.count.is_none(),
            "command: --count is not for an agent"
        );
        ensure!(
            !trace.setup.overwrite,
            "command: --flight is not for an agent"
        );
        let span = |name: &str, text: &str, least: u64| {
            let span = time_span(text).map_err(|why| anyhow::anyhow!("{name} {text:?}: {why}"))?;
            let is_long = span >= Duration::from_secs(least);
            ensure!(is_long, "{name} {text:?}: at least {least} s");
            Ok(span)
        };
        let max_bytes = bytes(&self.max_bytes);
        let max_bytes = max_bytes.map_err(|why| anyhow::anyhow!("max_bytes: {why}"))?;
        ensure!(max_bytes >= BYTES_MIN, "max_bytes: at least {BYTES_MIN}");
        ensure!(
            self.directory.is_absolute(),
            "directory {}: it begins with /",
            self.directory.display()
        );
        Ok(RecordingPlan {
            rotate: span("rotate", &self.rotate, 10)?,
            max_age: span("max_age", &self.max_age, 60)?,
            max_bytes,
            name: self.name,
            directory: self.directory,
            record,
        })
    }
}

impl PprofEntry {
    fn plan(self) -> anyhow::Result<(Endpoint, String)> {
        Ok((Endpoint::new(self.url, self.headers)?, self.application))
    }
}

impl OtlpEntry {
    fn add_to(self, outputs: &mut OutputsPlan) -> anyhow::Result<()> {
        let url = self.endpoint.trim_end_matches('/');
        let endpoint = |path| Endpoint::new(format!("{url}{path}"), self.headers.clone());
        let interval = interval(&self.interval)?;
        if self.metrics {
            outputs.otlp_metrics = Some((endpoint(METRICS_PATH)?, interval));
        }
        if self.profiles {
            outputs.otlp_profiles = Some(endpoint(PROFILES_PATH)?);
        }
        Ok(())
    }
}

fn interval(text: &str) -> anyhow::Result<Duration> {
    let interval = time_span(text).map_err(|why| anyhow::anyhow!("interval {text:?}: {why}"))?;
    ensure!(
        (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval),
        "interval {text:?}: 1s to 1h"
    );
    Ok(interval)
}

fn words(command: &str) -> anyhow::Result<Vec<String>> {
    shlex::split(command).context("command: a quote is not closed")
}

/// What a command line after `nsprobe` means.
fn plan_of(words: impl IntoIterator<Item = String>) -> anyhow::Result<Plan> {
    let words = ["nsprobe".to_owned()].into_iter().chain(words);
    Plan::of_words(words).map_err(|error| {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        anyhow::anyhow!("command: {text}")
    })
}

/// Refuses what an agent cannot do.
fn refuse(options: &TraceOptions) -> anyhow::Result<()> {
    let is_command = matches!(options.who, TargetSpec::Command(_));
    ensure!(!is_command, "command: COMMAND is not for an agent");
    ensure!(options.timeout.is_none(), "command: -t is not for an agent");
    Ok(())
}

/// What a command line of a verb that counts means.
fn counted(command: &str) -> anyhow::Result<AggregatePlan> {
    let Plan::Aggregate(plan) = plan_of(words(command)?)? else {
        bail!("command: it begins with a verb that counts, such as `count`");
    };
    refuse(&plan.options)?;
    let given = [
        (plan.output.is_some(), "-o"),
        (plan.interval.is_some(), "-i"),
        (plan.printing.json, "--json"),
        (plan.join.is_some(), "--wakers"),
    ];
    for (is_given, option) in given {
        ensure!(!is_given, "command: {option} is not for an agent");
    }
    Ok(plan)
}

/// Whether Prometheus takes it as a name.
fn is_metric_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    name.starts_with(is_letter)
        && name
            .chars()
            .all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<AgentConfig> {
        AgentConfig::of_text(text)
    }

    fn metric(name: &str, command: &str) -> String {
        format!("[[metric]]\nname = {name:?}\ncommand = {command:?}\n")
    }

    const LISTEN: &str = "listen = '127.0.0.1:9464'\n";

    #[test]
    fn a_metric_is_what_its_command_counts() {
        let text = metric("calls", "count --by container 'libc.so.6:SSL_*'");
        let plan = read(&format!("{LISTEN}{text}")).unwrap();
        assert_eq!(plan.listen.unwrap().port(), 9464);
        let [metric] = &plan.metrics[..] else {
            panic!("{plan:?}")
        };
        assert_eq!(metric.counted.by.len(), 1);
        assert!(metric.help.starts_with("nsprobe count --by"));
    }

    #[test]
    fn the_configuration_of_the_document_is_right() {
        let document = include_str!("../../../../docs/agent.md");
        let mut parts = document.split("```");
        let text = parts.find_map(|part| part.strip_prefix("toml\n"));
        let config = read(text.unwrap()).unwrap();
        assert_eq!((config.metrics.len(), config.profiles.len()), (2, 1));
    }

    #[test]
    fn the_configuration_of_the_package_is_right_also_with_what_is_commented_out() {
        let shipped = include_str!("../../../../packages/agent.toml");
        let config = read(shipped).unwrap();
        assert_eq!((config.metrics.len(), config.recordings.len()), (1, 0));
        let is_option = |line: &str| line.starts_with('[') || line.contains(" = ");
        let uncommented = shipped.lines().map(|line| match line.strip_prefix("# ") {
            Some(option) if is_option(option) => option,
            _ => line,
        });
        let config = read(&uncommented.collect::<Vec<_>>().join("\n")).unwrap();
        assert_eq!((config.profiles.len(), config.recordings.len()), (1, 1));
        assert!(config.outputs.otlp_metrics.is_some() && config.outputs.pprof.is_some());
    }

    #[test]
    fn errors_say_where_and_what() {
        for (text, why) in [
            (String::new(), "nothing to do"),
            ("listne = 1".to_owned(), "unknown field `listne`"),
            ("listen = 'x'".to_owned(), "invalid socket address"),
            (metric("a b", "count x.so:f"), "letters, digits"),
            (
                metric("a", "count x.so:f") + &metric("a", "count x.so:f"),
                "two called",
            ),
            (metric("nsprobe_hits", "count x.so:f"), "the agent's own"),
            (metric("a", "count 'x.so:f"), "quote"),
            (
                metric("a", "count x.so:f -t 5"),
                "metric \"a\": command: -t is not",
            ),
            (
                metric("a", "count x.so:f --colour"),
                "unexpected argument '--colour'",
            ),
            (metric("a", "trace x.so:f"), "a verb that counts"),
            (metric("a", "stacks x.so:f"), "a `count` or a `hist`"),
            (metric("a", "count x.so:f -- ls"), "COMMAND is not"),
            (metric("a", "count x.so:f"), "nothing gets the metrics"),
            ("[[profile]]\nname = 'cpu'\n".to_owned(), "no [pprof]"),
            (
                "[[profile]]\nname = 'cpu'\ninterval = '9y'\n".to_owned(),
                "interval \"9y\": not a time span",
            ),
            (
                "[[profile]]\nname = 'cpu'\n[pprof]\nurl = 'ftp://x'\n".to_owned(),
                "ftp://x: it begins with http://",
            ),
        ] {
            let error = read(&text).and_then(|_| read(&format!("{LISTEN}{text}")));
            let error = format!("{:#}", error.unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
