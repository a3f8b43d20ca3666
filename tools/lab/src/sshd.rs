//! An ssh server on the loopback interface, for guests that send their dumps.

use crate::apt::Apt;
use crate::cache::{self, Key};
use crate::child::end_with_parent;
use crate::tools::Tree;
use crate::validate::process::as_root;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A release whose server is one program.
const SUITE: &str = "bookworm";
/// The host's loopback interface, as guests see it.
const HOST: &str = "10.0.2.2";
/// How long a server may take to listen.
const START: Duration = Duration::from_secs(60);

/// As root, the server wants a user and a directory of its own. Both exist in its mount namespace only.
const RUN: &str = include_str!("../kdump-tools/sshd.sh");

/// A server that runs until it is dropped, with keys of its own. It lets one user log in, who owns its directory.
pub(crate) struct Sshd {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl Sshd {
    /// Starts a server with its files in `directory`.
    pub(crate) fn start(directory: &Path) -> Result<Sshd> {
        cache::make(directory)?;
        let key = Key::default().with(SUITE).with("openssh-server").short();
        let tree = cache::directory()?.join("tools").join(key);
        cache::once(&tree, |draft| {
            Apt::new(&[SUITE], false)?.unpack_closure(&["openssh-server"], draft).map(drop)
        })?;
        let tree = Tree::new(tree);
        for name in ["host", "user"] {
            let made = tree
                .command("ssh-keygen")?
                .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
                .arg(directory.join(name))
                .status();
            ensure!(made.context("running ssh-keygen")?.success(), "ssh-keygen made no key");
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        let port = listener.local_addr().context("finding a free port")?.port();
        drop(listener);
        let path = |name: &str| directory.join(name).display().to_string();
        let configuration = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
             AllowUsers dump\nSubsystem sftp internal-sftp\n",
            path("host"),
            path("user.pub")
        );
        fs::write(directory.join("config"), configuration).context("writing the configuration of sshd")?;
        let owner = fs::metadata(directory).with_context(|| directory.display().to_string())?;
        let log = File::create(directory.join("log")).context("making the log of sshd")?;
        let server = tree.command("sshd")?;
        let mut command = as_root("unshare");
        command
            .args(["--mount", "sh", "-eu", "-c", RUN, "sshd.sh"])
            .args([owner.uid().to_string(), owner.gid().to_string(), directory.display().to_string()])
            .arg(server.get_program())
            .args(server.get_args())
            // -r: the program that it would start for each connection is found without the tree's loader.
            .args(["-D", "-e", "-r", "-f", &path("config")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        end_with_parent(&mut command, libc::SIGTERM);
        let child = command.spawn().context("starting sshd")?;
        let mut sshd = Sshd { child, directory: directory.to_owned(), port };
        sshd.wait()?;
        Ok(sshd)
    }

    fn wait(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let ended = self.child.try_wait().context("waiting for sshd")?.is_some();
            if ended || start.elapsed() > START {
                bail!("sshd does not listen: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Where guests log in: USER@HOST.
    pub(crate) fn target() -> String {
        format!("dump@{HOST}")
    }

    /// The client's files, by the names that they have in `~/.ssh`.
    pub(crate) fn client_files(&self) -> Result<[(&'static str, Vec<u8>); 3]> {
        let read = |name: &str| {
            fs::read(self.directory.join(name)).with_context(|| format!("reading the key {name}"))
        };
        let host = [format!("[{HOST}]:{} ", self.port).as_bytes(), &read("host.pub")?].concat();
        let config = format!("Host {HOST}\n    Port {}\n", self.port);
        Ok([("kdump_id_rsa", read("user")?), ("known_hosts", host), ("config", config.into_bytes())])
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // SAFETY: the child is not waited for yet, so the number is its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let _ = self.child.wait();
    }
}

/// Makes a directory that guests may write to.
pub(crate) fn inbox(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("received");
    cache::make(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .with_context(|| path.display().to_string())?;
    Ok(path)
}
