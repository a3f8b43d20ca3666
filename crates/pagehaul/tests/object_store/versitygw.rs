//! versitygw, a real S3 server (`scripts/versitygw.sh`), which keeps objects as files.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// The server, with the files of an object store in a directory.
pub struct Store {
    directory: PathBuf,
    address: SocketAddr,
    /// A shell that kills the server when its standard input is closed, as it is when this process dies.
    running: Option<Child>,
}

/// The credentials that a server accepts.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    pub id: &'static str,
    pub secret: &'static str,
}

pub const KEYS: Keys = Keys { id: "AKIDFIRST", secret: "first-secret-of-the-test" };
pub const OTHER_KEYS: Keys = Keys { id: "AKIDOTHER", secret: "other-secret-of-the-test" };

impl Store {
    /// Starts a server with a bucket named `crashes`.
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        fs::create_dir_all(directory.join("objects/crashes")).unwrap();
        for name in ["attributes", "users"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut store = Self { directory: directory.to_owned(), address: free, running: None };
        store.run(KEYS, arguments);
        store
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// An object, or part of what an upload has left: a file.
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        fs::read(self.directory.join("objects/crashes").join(key)).ok()
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        if let Some(mut shell) = self.running.take() {
            drop(shell.stdin.take());
            shell.wait().unwrap();
        }
    }

    /// Runs the server at the address that it had before.
    pub fn run(&mut self, keys: Keys, arguments: &[&str]) {
        self.kill();
        let program = std::env::var_os("PAGEHAUL_VERSITYGW")
            .expect("PAGEHAUL_VERSITYGW names the server: run `make test-store`");
        let log = File::options().create(true).append(true).open(self.directory.join("log")).unwrap();
        let shell = Command::new("sh")
            .args(["-c", "\"$@\" & read -r _; kill -9 $!; wait", "sh"])
            .arg(program)
            .args(["--access", keys.id, "--secret", keys.secret, "--region", "us-east-1"])
            .args(["--port", &self.address.to_string()])
            .arg("--iam-dir")
            .arg(self.directory.join("users"))
            .args(arguments)
            .args(["posix", "--sidecar"])
            .args([self.directory.join("attributes"), self.directory.join("objects")])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running = Some(shell);
        for _ in 0..1000 {
            if TcpStream::connect(self.address).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("versitygw does not listen: {}", fs::read_to_string(self.directory.join("log")).unwrap());
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
    }
}
