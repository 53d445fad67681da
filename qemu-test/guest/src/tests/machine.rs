// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: CPUs come and go, and what they recorded stays.

use crate::module::Module;
use crate::records::Records;
use crate::session::{Session, RING_BYTES};
use crate::victim::Victim;
use nsprobe_common::abi;
use std::fs;

const FUNCTION: &str = "begins_with_push";

/// A CPU that is off, until this is dropped.
struct Offline(usize);

impl Offline {
    fn new(cpu: usize) -> Offline {
        switch(cpu, "0").unwrap_or_else(|error| panic!("CPU {cpu}: {error}"));
        Offline(cpu)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        if let Err(error) = switch(self.0, "1") {
            println!("CPU {} stays off: {error}", self.0);
        }
    }
}

fn switch(cpu: usize, on: &str) -> std::io::Result<()> {
    fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), on)
}

/// A session with one probe of the victim.
fn traced(victim: &Victim) -> (Session, u32) {
    let session = Session::with_rings(RING_BYTES);
    session.only(&[victim.pid()]).expect("it lives");
    let id = session.probe(victim.file(), &victim.function(FUNCTION), abi::PROBE_STACK);
    (session, id)
}

/// Hits on each of the two CPUs, as the counters have them; the records are as many.
fn hits(session: &Session, id: u32, records: &mut Records) -> [u64; 2] {
    let counted = [0, 1].map(|cpu| {
        let counters = session.counters_on(id, cpu).expect("its id");
        assert_eq!(counters.recorded, counters.hits, "{counters:?}");
        counters.hits
    });
    records.drain(&session.rings());
    let recorded = [0u16, 1].map(|cpu| {
        let hits = records.hits_of(id);
        hits.filter(|(hit, _)| hit.cpu == cpu).count() as u64
    });
    assert_eq!(recorded, counted, "records, counters");
    counted
}

test! { full, a_cpu_that_goes_offline_keeps_what_it_recorded, module, cpus = 2 }
fn a_cpu_that_goes_offline_keeps_what_it_recorded() {
    let _module = Module::load();
    let mut victim = Victim::caller(FUNCTION);
    let (session, id) = traced(&victim);
    let mut records = Records::default();
    victim.stay_on(1);
    victim.call(100);
    {
        let _offline = Offline::new(1);
        assert_eq!(hits(&session, id, &mut records), [0, 100]);
        // The kernel has let it go to any other.
        victim.stay_on(0);
        victim.call(50);
        assert_eq!(hits(&session, id, &mut records), [50, 100]);
    }
    victim.stay_on(1);
    victim.call(25);
    assert_eq!(hits(&session, id, &mut records), [50, 125]);
}

test! { full, a_cpu_that_comes_online_records, module, cpus = 2 }
fn a_cpu_that_comes_online_records() {
    let _module = Module::load();
    let mut victim = Victim::caller(FUNCTION);
    let offline = Offline::new(1);
    let (session, id) = traced(&victim);
    let mut records = Records::default();
    victim.stay_on(0);
    victim.call(10);
    assert_eq!(hits(&session, id, &mut records), [10, 0]);
    drop(offline);
    victim.stay_on(1);
    victim.call(20);
    assert_eq!(hits(&session, id, &mut records), [10, 20]);
}
