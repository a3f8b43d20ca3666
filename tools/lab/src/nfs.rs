//! An NFS server on the loopback interface, for guests that write their dumps to a mount.

use crate::cache;
use crate::server::{HOST, Server, free_port};
use crate::tools;
use crate::validate::process::as_root;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SUITE: &str = "bookworm";
/// The root of the exports.
const EXPORT: &str = "/dumps";

/// The server's state is in its mount namespace only, in which it finds neither rpcbind nor D-Bus.
const RUN: &str = "mount -t tmpfs tmpfs /run && exec \"$@\"";

/// A server of NFS version 4, which needs one port and no other services.
pub(crate) struct Nfs {
    pub(crate) server: Server,
    port: u16,
}

impl Nfs {
    /// Starts a server with its files in `directory`, whose clients write to `export` as its owner.
    pub(crate) fn start(directory: &Path, export: &Path) -> Result<Nfs> {
        cache::make(directory)?;
        let tree = tools::unpacked(&[SUITE], &["nfs-ganesha", "nfs-ganesha-vfs"])?;
        let port = free_port()?;
        let owner = fs::metadata(export).with_context(|| export.display().to_string())?;
        let configuration = format!(
            "NFS_Core_Param {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_UDP = false;\n\
             Enable_NLM = false; Enable_RQUOTA = false; Plugins_Dir = \"{}\"; }}\n\
             NFS_KRB5 {{ Active_krb5 = false; }}\n\
             NFSv4 {{ Graceless = true; RecoveryRoot = \"/run\"; Only_Numeric_Owners = true; UseGetpwnam = true; }}\n\
             EXPORT {{ Export_Id = 1; Path = \"{}\"; Pseudo = \"{EXPORT}\"; Access_Type = RW; SecType = sys;\n\
             Protocols = 4; Transports = TCP; Squash = All_Squash; Anonymous_Uid = {}; Anonymous_Gid = {};\n\
             FSAL {{ Name = VFS; }} }}\n",
            tree.path("usr/lib/x86_64-linux-gnu/ganesha").display(),
            export.display(),
            owner.uid(),
            owner.gid()
        );
        let file = directory.join("ganesha.conf");
        fs::write(&file, configuration).context("writing the configuration of the NFS server")?;
        let ganesha = tree.command("ganesha.nfsd")?;
        // As root: the server opens files by their handles.
        let mut command = as_root("unshare");
        command
            .args(["--mount", "sh", "-c", RUN, "nfs.sh"])
            .arg(ganesha.get_program())
            .args(ganesha.get_args())
            .args(["-F", "-L", "STDERR", "-p", "/run/ganesha.pid", "-f"])
            .arg(file);
        let server = Server::start(&mut command, &directory.join("log"), port, libc::SIGTERM)?;
        Ok(Nfs { server, port })
    }

    /// Returns what guests mount: HOST:EXPORT.
    pub(crate) fn target() -> String {
        format!("{HOST}:{EXPORT}")
    }

    /// Returns the guests' /etc/nfsmount.conf, which names the port: kdump-tools mounts without one.
    pub(crate) fn mount_options(&self) -> String {
        format!("[ Server \"{HOST}\" ]\nPort={}\n", self.port)
    }
}
