// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a reader that is killed, wherever it is at that moment, leaves nothing behind.

use super::{figure, must_refuse, reached, Memory, Progress};
use crate::module::Module;
use crate::oracle::within;
use crate::run::ROLE;
use crate::session::Session;
use crate::tests::garbage::Random;
use crate::victim::Victim;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PART: &str = "killed_readers";
const KILLS: u64 = 10_000;
/// Readers at once.
const AT_ONCE: u64 = 8;
/// Until when a reader is killed, when it is killed anywhere on its way.
const MICROSECONDS: u64 = 150_000;

fn reader(victim: &Victim, offset: u64) -> Child {
    let this = std::env::current_exe().expect("/proc is mounted");
    Command::new(this)
        .args([ROLE, "reader"])
        .arg(victim.file())
        .arg(offset.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("the reader starts")
}

/// Whether the watcher's is the only session, and no probe is there.
fn alone(watcher: &Session) -> Result<(), String> {
    let info = watcher.info();
    match (info.sessions, info.probes) == (1, 0) {
        true => Ok(()),
        false => Err(format!("{info:?}")),
    }
}

pub(super) fn killed_readers_leave_nothing() {
    let module = Module::load();
    let asked = figure(KILLS);
    let mut progress = Progress::new(PART, asked);
    let victim = Victim::start("call_in_loop", &["begins_with_push", "0", "200"]);
    let offset = victim.function("begins_with_push").offset;
    let watcher = Session::open();
    let mut random = Random(0x0dd_ba11);
    let (mut kills, mut with_session, mut with_probe) = (0, 0, 0);
    let mut memory = None;
    while kills < asked {
        let mut readers: Vec<Child> = (0..AT_ONCE).map(|_| reader(&victim, offset)).collect();
        // Every other time they all have their probes, else each is somewhere on its way.
        if (kills / AT_ONCE).is_multiple_of(2) {
            let attached = within(Duration::from_secs(60), || {
                u64::from(watcher.info().probes) == AT_ONCE
            });
            assert!(attached, "readers do not attach: {:?}", watcher.info());
            if kills == 0 {
                must_refuse(PART, "readers that live", alone(&watcher));
            }
        }
        let start = Instant::now();
        let mut times: Vec<Duration> = (0..AT_ONCE)
            .map(|_| Duration::from_micros(random.next() % MICROSECONDS))
            .collect();
        times.sort_unstable();
        for (reader, time) in readers.iter_mut().zip(times) {
            std::thread::sleep(time.saturating_sub(start.elapsed()));
            let info = watcher.info();
            with_session += u64::from(info.sessions > 1);
            with_probe += u64::from(info.probes > 0);
            reader.kill().expect("it lives for ever");
            reader.wait().expect("ours");
        }
        let mut verdict = Ok(());
        within(Duration::from_secs(20), || {
            verdict = alone(&watcher);
            verdict.is_ok()
        });
        verdict.expect("nothing is left");
        assert!(victim.text_is_restored(offset), "a breakpoint is left");
        kills += AT_ONCE;
        if memory.is_none() && kills >= asked / 10 {
            memory = Some((Memory::begin(), kills));
        }
        progress.at(kills);
    }
    let (memory, from) = memory.expect("there was a round");
    memory.end(PART, kills - from);
    drop(watcher);
    assert_eq!(module.references(), 0);
    println!(
        "soak: {PART}: {kills} kills, {with_session} while there were sessions, {with_probe} \
         while there were probes"
    );
    assert!(with_probe * 4 >= kills, "most readers had no probe yet");
    reached(PART, asked, kills, "kills");
}
