//! Captures to a real S3 server through a network that fails: every upload ends whole, or can be continued.
//!
//! `make test-store` builds the server and runs these tests. What a real server cannot be made to answer is tested in
//! `crates/remote`.

#[path = "../common"]
mod common {
    pub mod bucket;
    pub mod setup;
}

mod proxy;
mod versitygw;

use common::bucket;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::setup::{BINARY, Setup};
use proxy::{Fault, Proxy};
use rusty_s3::actions::{PutObject, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use versitygw::{KEYS, Keys, OTHER_KEYS, Store};

const URL: &str = "s3://crashes/host7/dump.flat";
const KEY: &str = "host7/dump.flat";
/// A stream of this many parts.
const PARTS: usize = 5;
const NOISE_MIB: u64 = 34;

/// A vmcore, its stream, and a store.
struct Scene {
    setup: Setup,
    stream: Vec<u8>,
    store: Arc<Mutex<Store>>,
}

impl Scene {
    fn new() -> Self {
        Self::with_store(&[])
    }

    fn with_store(arguments: &[&str]) -> Self {
        let setup = Setup::with_noise(NOISE_MIB);
        let stream = setup.run(&["capture", "-q", "-d", "0", "-c", "none", "vmcore", "-"]).stdout;
        assert_eq!(stream.len().div_ceil(8 << 20), PARTS);
        let store = Store::start(setup.directory.path(), arguments);
        Self { setup, stream, store: Arc::new(Mutex::new(store)) }
    }

    fn object(&self) -> Option<Vec<u8>> {
        self.store.lock().unwrap().object(KEY)
    }

    fn proxy(&self, decide: impl FnMut(&str) -> Fault + Send + 'static) -> Proxy {
        let server = self.store.lock().unwrap().address();
        Proxy::start(server, decide)
    }

    /// A capture to the store at `endpoint`.
    fn capture(&self, endpoint: &str, to: &str) -> Command {
        self.capture_by(&[], endpoint, to)
    }

    /// A capture that another program runs.
    fn capture_by(&self, runner: &[&str], endpoint: &str, to: &str) -> Command {
        let words = [runner, &[BINARY, "capture", "-d", "0", "-c", "none", "vmcore", to]].concat();
        let directory = self.setup.directory.path();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(directory).stdin(Stdio::null()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", directory).env("AWS_ENDPOINT_URL", endpoint);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_ACCESS_KEY_ID", KEYS.id).env("AWS_SECRET_ACCESS_KEY", KEYS.secret);
        command
    }

    /// Expects that the object is the stream.
    fn assert_whole(&self, output: &Output, about: &str) {
        assert!(output.status.success(), "{about}: {}", told(output));
        assert!(self.object().as_ref() == Some(&self.stream), "{about}");
    }
}

/// What a command told, which has no secrets.
fn told(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        ![KEYS.secret, OTHER_KEYS.secret, "Signature"].iter().any(|hidden| told.contains(hidden)),
        "{told}"
    );
    told
}

/// The number of the part that a request uploads.
fn part(line: &str) -> Option<usize> {
    let (_, number) = line.strip_prefix("PUT ")?.split_once("partNumber=")?;
    number.split('&').next()?.parse().ok()
}

/// What a request is for, without what differs from try to try.
fn purpose(line: &str) -> String {
    let kind = match line {
        line if line.contains("uploadId=") => "of an upload",
        line if line.contains("uploads") => "of uploads",
        _ => "",
    };
    format!("{} {:?} {kind}", line.split(' ').next().unwrap(), part(line))
}

#[test]
#[ignore = "needs versitygw: make test-store"]
fn each_request_may_fail_once() {
    let faults = [
        Fault::None,
        Fault::Cut(0),
        Fault::Cut(1_000_000),
        Fault::LostAnswer,
        Fault::Changed,
        Fault::Refused,
        Fault::Slow,
    ];
    for fault in faults {
        let scene = Scene::new();
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let shared = seen.clone();
        let proxy = scene.proxy(move |line| match (fault, part(line)) {
            // Bodies of other requests are too short for these.
            (Fault::Cut(1..) | Fault::Changed, None) => Fault::None,
            _ if shared.lock().unwrap().insert(purpose(line)) => fault,
            _ => Fault::None,
        });
        let output = scene.capture(&proxy.url(), URL).output().unwrap();
        scene.assert_whole(&output, &format!("{fault:?}"));
        let parts = seen.lock().unwrap().iter().filter(|purpose| purpose.contains("Some")).count();
        assert_eq!(parts, PARTS, "{fault:?}");
    }
}

#[test]
#[ignore = "needs versitygw: make test-store"]
fn a_capture_that_is_killed_continues() {
    for killed_at in 1..=PARTS {
        let scene = Scene::new();
        let (pid, child) = channel::<u32>();
        let proxy = scene.proxy(move |line| {
            if part(line) != Some(killed_at) {
                return Fault::None;
            }
            if let Ok(pid) = child.recv() {
                assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
            }
            Fault::Cut(1_000_000)
        });
        let mut killed = scene.capture(&proxy.url(), URL).stderr(Stdio::null()).spawn().unwrap();
        pid.send(killed.id()).unwrap();
        assert_eq!(killed.wait().unwrap().code(), None, "it was killed");
        assert!(scene.object().is_none(), "{killed_at}");
        drop(proxy);

        let puts = Arc::new(Mutex::new(Vec::new()));
        let shared = puts.clone();
        let proxy = scene.proxy(move |line| {
            shared.lock().unwrap().extend(part(line));
            Fault::None
        });
        let output = scene.capture(&proxy.url(), URL).output().unwrap();
        scene.assert_whole(&output, &format!("killed at part {killed_at}"));
        assert_eq!(*puts.lock().unwrap(), (killed_at..=PARTS).collect::<Vec<_>>());
        let resumed = told(&output).contains("were there from an earlier upload");
        assert_eq!(resumed, killed_at > 1, "{}", told(&output));
    }
}

#[test]
#[ignore = "needs versitygw: make test-store"]
fn a_server_that_is_restarted_gets_the_rest() {
    // Before the last part it accepts other credentials only: the file that holds them is read again.
    let scene = Scene::new();
    let file = scene.setup.path("s3");
    write_keys(&file, KEYS);
    let (store, keys) = (scene.store.clone(), file.clone());
    let mut restarted = BTreeSet::new();
    let proxy = scene.proxy(move |line| match part(line) {
        Some(number) if restarted.insert(number) => {
            let mut store = store.lock().unwrap();
            if number < PARTS {
                store.run(KEYS, &[]);
            } else {
                store.run(OTHER_KEYS, &[]);
                write_keys(&keys, OTHER_KEYS);
            }
            Fault::None
        }
        _ => Fault::None,
    });
    let output = scene.capture(&proxy.url(), URL).env("PAGEHAUL_S3", &file).output().unwrap();
    scene.assert_whole(&output, "restarted");
    let verify = Command::new(BINARY)
        .args(["verify", URL])
        .env_clear()
        .envs([("PAGEHAUL_S3", file.as_os_str()), ("AWS_ENDPOINT_URL", proxy.url().as_ref())])
        .output()
        .unwrap();
    assert!(verify.status.success(), "{}", told(&verify));
}

fn write_keys(path: &Path, keys: Keys) {
    let _ = fs::remove_file(path);
    let text = format!("aws_access_key_id = {}\naws_secret_access_key = {}\n", keys.id, keys.secret);
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
#[ignore = "needs versitygw: make test-store"]
fn credentials_that_are_refused_end_a_capture_that_can_be_continued() {
    let scene = Scene::new();
    let store = scene.store.clone();
    let proxy = scene.proxy(move |line| {
        if part(line) == Some(3) {
            store.lock().unwrap().run(OTHER_KEYS, &[]);
        }
        Fault::None
    });
    let output = scene.capture(&proxy.url(), URL).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = told(&output);
    assert!(told.contains("the store does not know the access key"), "{told}");
    assert!(told.contains("the same command continues there"), "{told}");
    assert!(scene.object().is_none());
    drop(proxy);

    let proxy = scene.proxy(|_| Fault::None);
    let mut command = scene.capture(&proxy.url(), URL);
    command.env("AWS_ACCESS_KEY_ID", OTHER_KEYS.id).env("AWS_SECRET_ACCESS_KEY", OTHER_KEYS.secret);
    let output = command.output().unwrap();
    scene.assert_whole(&output, "with the new credentials");
}

#[test]
#[ignore = "needs versitygw: make test-store"]
fn a_wrong_clock_does_not_keep_a_dump_from_the_store() {
    for clock in ["1990-01-01 00:00:00", "2060-01-01 00:00:00"] {
        let scene = Scene::new();
        let proxy = scene.proxy(|_| Fault::None);
        let output = scene.capture_by(&["faketime", clock], &proxy.url(), URL).output().unwrap();
        scene.assert_whole(&output, clock);
    }
}

#[test]
#[ignore = "needs versitygw: make test-store"]
fn a_server_is_trusted_by_its_certificate_and_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new("sh")
        .args(["-c", include_str!("../../../../tools/lab/kdump-tools/certificate.sh"), "certificate.sh"])
        .arg(directory.path())
        .args(["127.0.0.1", "30"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = |name: &str| directory.path().join(name).display().to_string();
    let scene = Scene::with_store(&["--cert", &path("server.pem"), "--key", &path("server.key")]);
    let endpoint = format!("https://{}", scene.store.lock().unwrap().address());
    let run = |runner: &[&str], authority: Option<&str>| {
        let mut command = scene.capture_by(runner, &endpoint, URL);
        command.envs(authority.map(|name| ("SSL_CERT_FILE", path(name))));
        command.output().unwrap()
    };
    for (runner, authority, reason) in [
        (&[][..], None, "for a private certificate authority, set SSL_CERT_FILE"),
        (&[], Some("server.key"), "it has none (expected PEM)"),
        (
            &["faketime", "1990-01-01 00:00:00"],
            Some("authority.pem"),
            "not valid yet by this machine's clock (1990-01-01",
        ),
        (
            &["faketime", "2060-01-01 00:00:00"],
            Some("authority.pem"),
            "has expired by this machine's clock (2060-01-01",
        ),
    ] {
        let output = run(runner, authority);
        assert_eq!(output.status.code(), Some(1));
        assert!(told(&output).contains(reason), "{}", told(&output));
        assert!(scene.object().is_none());
    }
    scene.assert_whole(&run(&[], Some("authority.pem")), "with its authority");
}

#[test]
#[ignore = "needs versitygw: make test-store"]
fn an_object_that_appears_meanwhile_is_not_replaced() {
    let scene = Scene::new();
    let server = scene.store.lock().unwrap().address();
    let endpoint = format!("http://{server}").parse().unwrap();
    let bucket = Bucket::new(endpoint, UrlStyle::Path, "crashes", "us-east-1").unwrap();
    let put = PutObject::new(&bucket, Some(&Credentials::new(KEYS.id, KEYS.secret)), KEY)
        .sign(Duration::from_secs(600));
    let proxy = scene.proxy(move |line| {
        if part(line) == Some(PARTS) {
            let mut store = TcpStream::connect(server).unwrap();
            let target = put.as_str().split_once(&server.to_string()).unwrap().1;
            write!(store, "PUT {target} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nContent-Length: 5\r\n\r\nother")
                .unwrap();
            let mut answer = String::new();
            store.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        Fault::None
    });
    let output = scene.capture(&proxy.url(), URL).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("none is replaced"), "{}", told(&output));
    assert_eq!(scene.object().as_deref(), Some(&b"other"[..]));
}

#[test]
#[ignore = "needs versitygw: make test-store"]
fn the_guide_goes_from_a_crash_to_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::start(directory.path(), &[]);
    bucket::from_a_crash_to_a_report(&format!("http://{}", store.address()), KEYS.id, KEYS.secret);
}
