// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers on loopback with prepared answers. The guest test queries Debian's own.

use super::servers::checked;
use super::*;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::mpsc::{channel, Receiver};

const ID: [u8; 4] = [0xab, 0xcd, 0x01, 0x23];

/// A folder that is removed with everything in it.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new(name: &str) -> TemporaryFolder {
        let name = format!("nsprobe-debuginfod-{name}-{}", std::process::id());
        let path = env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        TemporaryFolder(path)
    }

    fn entry(&self) -> PathBuf {
        self.0.join("abcd0123/debuginfo")
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that gives every request the same answer, and reports the requested paths.
fn serve(answer: Vec<u8>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            let _ = lines.find(|line| line.as_ref().is_ok_and(String::is_empty));
            let path = request.split(' ').nth(1).unwrap().to_owned();
            if sender.send(path).is_err() {
                return;
            }
            if answer.is_empty() {
                // It never answers, and does not hang up.
                std::mem::forget(stream);
                continue;
            }
            let _ = stream.write_all(&answer);
        }
    });
    (url, asked)
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn client(folder: &TemporaryFolder, urls: &[&str]) -> Debuginfod {
    let limits = ServerLimits {
        answer: Duration::from_millis(300),
        whole: Duration::from_secs(2),
    };
    let server = |url: &&str| Server::new(url, limits);
    Debuginfod {
        servers: urls.iter().map(server).collect(),
        cache: folder.0.clone(),
        bytes_max: 1000,
        is_quiet: true,
        missing: Mutex::default(),
    }
}

fn text(mut found: OpenFile) -> String {
    let mut text = String::new();
    std::io::Seek::rewind(&mut found.file).unwrap();
    found.file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_file_is_fetched_once_and_kept_where_elfutils_keeps_it() {
    let folder = TemporaryFolder::new("once");
    let (url, asked) = serve(answer("200 OK", "Content-Length: 5\r\n", b"debug"));
    let client = client(&folder, &[&format!("{url}/")]);
    assert_eq!(text(client.find(&ID).unwrap().unwrap()), "debug");
    assert_eq!(asked.recv().unwrap(), "/buildid/abcd0123/debuginfo");
    assert_eq!(fs::read(folder.entry()).unwrap(), b"debug");
    let kept = fs::read_dir(folder.entry().parent().unwrap()).unwrap();
    assert_eq!(kept.count(), 1, "a part is left");
    let again = client.find(&ID).unwrap().unwrap();
    assert_eq!(*again.path, folder.entry());
    assert_eq!(again.found_in, FoundIn::Debuginfod);
    assert_eq!(text(again), "debug");
    assert!(asked.try_recv().is_err(), "it was asked again");
}

#[test]
fn the_next_server_is_asked_and_nobody_twice_for_what_is_missing() {
    let folder = TemporaryFolder::new("next");
    let (first, asked_first) = serve(answer("404 Not Found", "", b""));
    let (second, asked_second) = serve(answer("404 Not Found", "", b""));
    let client = client(&folder, &[&first, &second]);
    for _ in 0..3 {
        assert!(client.find(&ID).unwrap().is_none());
    }
    assert_eq!(asked_first.try_iter().count(), 1);
    assert_eq!(asked_second.try_iter().count(), 1);
    // No path can be made of such an id.
    assert!(client.find(&[]).unwrap().is_none());
    assert!(client.find(&[1; 65]).unwrap().is_none());
}

#[test]
fn a_mute_server_costs_its_time_once() {
    let folder = TemporaryFolder::new("mute");
    let (url, asked) = serve(Vec::new());
    let client = client(&folder, &[&url]);
    client.find(&ID).unwrap_err();
    assert!(client.find(&[9; 20]).unwrap().is_none());
    assert_eq!(asked.try_iter().count(), 1);
}

#[test]
fn what_is_too_big_or_empty_or_cut_short_is_not_kept() {
    let endless = [
        b"Transfer-Encoding: chunked\r\n\r\n".to_vec(),
        b"400\r\n".to_vec(),
    ]
    .concat();
    let mut endless = [b"HTTP/1.1 200 OK\r\n".to_vec(), endless].concat();
    endless.extend([b'x'; 0x400]);
    endless.extend(b"\r\n400\r\n");
    endless.extend([b'x'; 0x400]);
    for (name, answer) in [
        (
            "declared",
            answer("200 OK", "Content-Length: 5000000000\r\n", b"x"),
        ),
        ("endless", endless),
        ("empty", answer("200 OK", "Content-Length: 0\r\n", b"")),
        (
            "cut",
            answer("200 OK", "Content-Length: 500\r\n", b"only this"),
        ),
    ] {
        let folder = TemporaryFolder::new(name);
        let (url, _asked) = serve(answer);
        let error = client(&folder, &[&url]).find(&ID);
        assert!(error.is_err(), "{name}: {error:?}");
        assert!(!folder.entry().exists(), "{name}");
        let kept = fs::read_dir(folder.entry().parent().unwrap());
        assert_eq!(kept.map_or(0, Iterator::count), 0, "{name}");
    }
}

#[test]
fn no_redirection_is_followed_from_http() {
    let folder = TemporaryFolder::new("redirected");
    let (elsewhere, asked) = serve(answer("200 OK", "Content-Length: 5\r\n", b"decoy"));
    for target in [
        elsewhere.as_str(),
        "file:///etc/passwd",
        "https://localhost:1",
    ] {
        let headers = format!("Location: {target}/buildid/abcd0123/debuginfo\r\n");
        let (url, _asked) = serve(answer("302 Found", &headers, b""));
        let error = client(&folder, &[&url]).find(&ID).unwrap_err();
        println!("{error}");
        assert!(!folder.entry().exists());
    }
    assert!(asked.try_recv().is_err(), "the redirection was followed");
}

/// elfutils keeps an empty file for a while of what no server has.
#[test]
fn a_miss_of_elfutils_is_one_of_ours_while_it_is_new() {
    let folder = TemporaryFolder::new("miss");
    let (url, asked) = serve(answer("200 OK", "Content-Length: 5\r\n", b"debug"));
    fs::create_dir_all(folder.entry().parent().unwrap()).unwrap();
    let file = File::create(folder.entry()).unwrap();
    assert!(client(&folder, &[&url]).find(&ID).unwrap().is_none());
    assert!(asked.try_recv().is_err());
    let old = std::time::SystemTime::now() - 2 * MISS;
    file.set_modified(old).unwrap();
    assert!(client(&folder, &[&url]).find(&ID).unwrap().is_some());
    // A link leads elsewhere.
    fs::remove_file(folder.entry()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.entry()).unwrap();
    let found = client(&folder, &[&url]).find(&ID).unwrap().unwrap();
    assert_eq!(text(found), "debug");
}

#[test]
fn only_http_and_https_are_asked() {
    let limits = ServerLimits {
        answer: PATIENCE,
        whole: TIME_MAX,
    };
    for url in [
        "file:///srv",
        "ftp://x",
        "debuginfod.debian.net",
        "httpx://y",
    ] {
        let error = checked(&format!("https://sound {url}")).unwrap_err();
        assert!(error.contains(url), "{error}");
    }
    assert!(checked(" ").unwrap_err().contains("which is empty"));
    assert_eq!(checked("http://a https://b").unwrap().len(), 2);
    let (http, https) = ("http://localhost:1", "https://localhost:1");
    let secure = |url| Server::new(url, limits).agent.config().https_only();
    assert_eq!((secure(http), secure(https)), (false, true));
}
