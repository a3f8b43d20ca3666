//! Servers on the host's loopback interface, for guests that send their dumps.

use crate::cache;
use crate::child::end_with_parent;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The host's loopback interface, as guests see it.
pub(crate) const HOST: &str = "10.0.2.2";
/// How long a server may take to listen.
const START: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
    /// What ends it.
    signal: i32,
}

impl Server {
    /// Starts a server, which writes to `log`, and waits until it listens on `port`.
    pub(crate) fn start(command: &mut Command, log: &Path, port: u16, signal: i32) -> Result<Server> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().with_context(|| log.display().to_string())?)
            .stderr(file);
        end_with_parent(command, signal);
        let child =
            command.spawn().with_context(|| format!("starting {}", command.get_program().display()))?;
        let mut server = Server { child, log: log.to_owned(), signal };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = server.child.try_wait().context("waiting for the server")?.is_some();
            ensure!(!ended && start.elapsed() < START, "the server does not listen: {}", server.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Returns what the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            // SAFETY: the child is not waited for yet, so the number is its own.
            unsafe { libc::kill(pid, self.signal) };
        }
        let _ = self.child.wait();
    }
}

/// Returns a port on which nothing listens.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
    Ok(listener.local_addr().context("finding a free port")?.port())
}

/// Makes a directory that guests may write to.
pub(crate) fn inbox(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("received");
    cache::make(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .with_context(|| path.display().to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_is_reported_with_its_log() {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such option >&2; exit 2"]);
        // Nothing can listen on port 0.
        let started = Server::start(&mut command, &place.path().join("log"), 0, libc::SIGKILL);
        let error = started.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("does not listen: no such option"), "{error}");
    }

    #[test]
    fn a_server_ends_when_it_is_dropped() {
        let place = tempfile::tempdir().unwrap();
        // Its port is this test's.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let mut command = Command::new("sleep");
            let log = place.path().join("log");
            // Without its end, the drop would wait for an hour.
            drop(Server::start(command.arg("3600"), &log, port, signal).unwrap());
        }
    }
}
