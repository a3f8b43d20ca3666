//! An ssh server on the loopback interface, for guests that send their dumps.

use crate::cache;
use crate::server::{HOST, Server, free_port};
use crate::tools;
use crate::validate::process::as_root;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A release whose server is one program.
const SUITE: &str = "bookworm";

/// As root, the server wants a user and a directory of its own. Both exist in its mount namespace only.
const RUN: &str = include_str!("../kdump-tools/sshd.sh");

/// A server that runs until it is dropped, with keys of its own. It lets one user log in, who owns its directory.
pub(crate) struct Sshd {
    pub(crate) server: Server,
    directory: PathBuf,
    port: u16,
}

impl Sshd {
    /// Starts a server with its files in `directory`.
    pub(crate) fn start(directory: &Path) -> Result<Sshd> {
        cache::make(directory)?;
        let tree = tools::unpacked(&[SUITE], &["openssh-server"])?;
        for name in ["host", "user"] {
            let made = tree
                .command("ssh-keygen")?
                .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
                .arg(directory.join(name))
                .status();
            ensure!(made.context("running ssh-keygen")?.success(), "ssh-keygen made no key");
        }
        let port = free_port()?;
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
        let sshd = tree.command("sshd")?;
        let mut command = as_root("unshare");
        command
            .args(["--mount", "sh", "-eu", "-c", RUN, "sshd.sh"])
            .args([owner.uid().to_string(), owner.gid().to_string(), directory.display().to_string()])
            .arg(sshd.get_program())
            .args(sshd.get_args())
            // -r: the program that it would start for each connection is found without the tree's loader.
            .args(["-D", "-e", "-r", "-f", &path("config")]);
        let server = Server::start(&mut command, &directory.join("log"), port, libc::SIGTERM)?;
        Ok(Sshd { server, directory: directory.to_owned(), port })
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
