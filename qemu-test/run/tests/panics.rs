// SPDX-License-Identifier: MIT OR Apache-2.0
//! That `scripts/panics.sh` tells what may panic from what may not, as each kernel spells it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// `Module::init` on Linux 7.2, and from 7.3 on, where the trait is in a module of its own.
const INIT: [&str; 2] = [
    "_RNvXCsfi_4mainNtB2_7NsprobeNtCsb5_6kernel6Module4init",
    "_RNvXCsfi_4mainNtB2_7NsprobeNtNtCsb5_6kernel6module6Module4init",
];
const OF_A_HIT: &str = "_RNvNtCsfi_4main5probe3hit";

/// What the script says of an object in which these functions panic, beside those of requests,
/// without which it says that it finds too little.
fn judged(name: &str, panicking: &[&str]) -> Output {
    let folder = std::env::temp_dir().join(format!("panics-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("it is ours");
    let requests = (0..10).map(|n| format!("_RNvNtCsfi_4main7sessionNtB2_{n}"));
    let functions = requests.chain(panicking.iter().map(|one| (*one).to_owned()));
    let text: String = functions
        .map(|name| format!("{name}:\n\tcall _RNvNtCs1_4core9panicking5panic\n\tret\n"))
        .collect();
    let source = folder.join("main.s");
    fs::write(&source, text).expect("it is ours");
    let object = folder.join("main.o");
    let mut gcc = Command::new("gcc");
    gcc.arg("-c").arg("-o").arg(&object).arg(&source);
    assert!(gcc.status().expect("gcc is there").success());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/panics.sh");
    let output = Command::new(script).arg(&object).output().expect("it runs");
    fs::remove_dir_all(&folder).expect("it is ours");
    output
}

#[test]
fn what_sets_the_module_up_may_panic_and_a_hit_may_not() {
    for init in INIT {
        let output = judged("init", &[init]);
        assert!(output.status.success(), "{output:?}");
    }
    let output = judged("hit", &[INIT[0], OF_A_HIT]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains(OF_A_HIT) && !said.contains(INIT[0]), "{said}");
}
