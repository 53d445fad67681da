// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: Debian's debuginfod server names frames when the user wants it, and nobody is
//! asked when he does not.

use crate::binary;
use crate::command::{nsprobe, output};
use crate::container::{Container, Root};
use crate::debug_files::{build_id, debug_of, strip, text, Traced};
use crate::module::Module;
use crate::oracle::within;
use crate::victim;
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = "/usr/local/bin/named";
const PORT: u16 = 8002;

/// Debian's server over a folder of the guest's; killed with the value.
struct Server {
    child: Child,
    folder: PathBuf,
}

impl Server {
    fn start() -> Server {
        let folder = PathBuf::from(format!("/var/tmp/debuginfod-{}", std::process::id()));
        debug_of(&victim::path("named"), &folder.join("files/named.debug"));
        let _ = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        let child = Command::new("debuginfod")
            .args(["-F", "-p", &PORT.to_string(), "-d"])
            .arg(folder.join("database"))
            .arg(folder.join("files"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("debuginfod is in the guest");
        Server { child, folder }
    }

    /// Whether it has found the file; elfutils' own client is the witness.
    fn has(&self, id: &str) -> bool {
        let client = Command::new("debuginfod-find")
            .args(["debuginfo", id])
            .env("DEBUGINFOD_URLS", url())
            .env("DEBUGINFOD_CACHE_PATH", self.folder.join("witness"))
            .output()
            .expect("debuginfod-find is in the guest");
        // It remembers for some minutes that there is none.
        let _ = fs::remove_dir_all(self.folder.join("witness"));
        client.status.success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn url() -> String {
    format!("http://127.0.0.1:{PORT}")
}

test! { full, a_debuginfod_server_names_frames_when_it_is_wanted, seconds = 120 }
fn a_debuginfod_server_names_frames_when_it_is_wanted() {
    let _module = Module::load();
    let whole = victim::path("named");
    let id = build_id(&whole);
    let server = Server::start();
    let up = || TcpStream::connect(("127.0.0.1", PORT)).is_ok();
    assert!(within(Duration::from_secs(30), up), "no server");
    assert!(
        within(Duration::from_secs(30), || server.has(&id)),
        "it has not the file"
    );
    let root = Root::with("named", PROGRAM);
    let program = root.folder.join(&PROGRAM[1..]);
    fs::remove_file(&program).expect("it is there");
    strip(&whole, &program);
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let cache = server.folder.join("cache");
    let file = cache.join(&id).join("debuginfo");
    let spec = format!("{PROGRAM}:{:#x}", binary::function(&whole, "charge").offset);
    let words = ["trace", "-c", "named", "--stack", "--json", "--count", "3"];
    let run = |more: &[&str]| {
        let mut command = nsprobe(&words);
        command.args(["--timeout", "60"]).args(more).arg(&spec);
        command.env("DEBUGINFOD_URLS", url());
        command.env("DEBUGINFOD_CACHE_PATH", &cache);
        Traced::new(output(&mut command).succeeded())
    };
    // Not asked for, not done.
    run(&[]).is_nameless(&["no debug information", "looked for"]);
    assert!(!cache.exists(), "a server was asked");
    run(&["--debuginfod"]).agrees(&whole, "debuginfod", text(&file));
    let witness = fs::read(server.folder.join("files/named.debug")).expect("it is there");
    assert_eq!(fs::read(&file).expect("it is kept"), witness);
    // What is in the cache needs no server; elfutils finds it, too.
    let folder = server.folder.clone();
    let mut server = server;
    let _ = (server.child.kill(), server.child.wait());
    run(&["--debuginfod"]).agrees(&whole, "debuginfod", text(&file));
    let found = Command::new("debuginfod-find")
        .args(["debuginfo", &id])
        .env("DEBUGINFOD_URLS", url())
        .env("DEBUGINFOD_CACHE_PATH", &cache)
        .output()
        .expect("debuginfod-find is in the guest");
    assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), text(&file));
    // A file of another build under that name is refused.
    debug_of(&victim::path("named_decoy"), &folder.join("decoy"));
    fs::rename(folder.join("decoy"), &file).expect("the cache is writable");
    let refused = ["from debuginfod is refused: its build-id is"];
    run(&["--debuginfod"]).is_nameless(&refused);
}

test! { full, without_a_server_debuginfod_is_an_error }
fn without_a_server_debuginfod_is_an_error() {
    let _module = Module::load();
    let spec = format!("{}:charge", text(&victim::path("named")));
    for (urls, part) in [
        ("", "DEBUGINFOD_URLS"),
        ("file:///srv", "neither http:// nor"),
    ] {
        let mut command = nsprobe(&["trace", "--debuginfod", "--timeout", "1", &spec]);
        command.env("DEBUGINFOD_URLS", urls);
        // A usage error.
        let got = output(&mut command);
        assert!(got.code == 2 && got.stderr.contains(part), "{got:#?}");
    }
}
