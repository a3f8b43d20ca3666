//! Captures that leave the machine: a guest whose hardware clock is years behind sends its dump from the capture kernel to the host, to
//! an S3 server with TLS and over ssh.

use crate::kdump_tools::{Boot, CRASH, Guest, RELEASES, prepared};
use crate::server::{self, HOST, Server, free_port};
use crate::sshd::Sshd;
use crate::tools::Tools;
use crate::{build, cache};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs in the capture kernel.
const UPLOAD: &str = include_str!("../kdump-tools/upload.sh");
const CERTIFICATE: &str = include_str!("../kdump-tools/certificate.sh");
const CRASHKERNEL: &str = "256M";
/// The hardware clock of a machine whose battery is empty.
const CLOCK: &str = "1990-01-01T00:00:00";
const KEY: &str = "host7/dump.flat";
const ACCESS: [&str; 2] = ["AKIDGUEST", "secret-of-the-guest"];

/// Crashes a guest, and checks what arrives on the host.
pub fn validate(server: &Path, pagehaul: Option<PathBuf>) -> Result<()> {
    let [release, ..] = &RELEASES;
    let tools = Tools::get()?;
    let prepared = prepared(release, &tools)?;
    let pagehaul = pagehaul.map_or_else(build::pagehaul_for_upload, Ok)?;
    let scratch = cache::directory()?.join(format!("kdump-upload-{}", std::process::id()));
    let guest = Guest::copy(release, &tools, &prepared, &scratch)?;
    let result = upload(&guest, server, &pagehaul, &scratch);
    // Kept on failure, to look at.
    if result.is_ok() {
        fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    }
    result.with_context(|| format!("the guest's disk is kept in {}", scratch.display()))
}

fn upload(guest: &Guest<'_>, server: &Path, pagehaul: &Path, scratch: &Path) -> Result<()> {
    let store = Store::start(server, &scratch.join("store"))?;
    let sshd = Sshd::start(&scratch.join("ssh"))?;
    let received = server::inbox(&scratch.join("ssh"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the host's clock")?.as_secs();
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    let [id, secret] = ACCESS;
    let settings = format!(
        "aws_access_key_id = {id}\naws_secret_access_key = {secret}\nendpoint_url = https://{HOST}:{}\n",
        store.port
    );
    let file = format!("{}{}/dump.flat", Sshd::target(), received.display());
    guest.put(&[
        ("run.sh", CRASH.as_bytes()),
        ("upload.sh", UPLOAD.as_bytes()),
        ("pagehaul", &read(pagehaul)?),
        ("verb", b"upload\n"),
        ("now", now.to_string().as_bytes()),
        ("s3", settings.as_bytes()),
        ("authority.pem", &read(&store.directory.join("authority.pem"))?),
        ("object", format!("s3://crashes/{KEY}\n").as_bytes()),
        ("file", format!("{file}\n").as_bytes()),
    ])?;
    for (name, content) in sshd.client_files()? {
        guest.put(&[(name, content.as_slice())])?;
    }
    let boot = Boot {
        crashkernel: CRASHKERNEL,
        crashes: true,
        network: true,
        clock: Some(CLOCK),
        ..Boot::default()
    };
    let said = guest.run(boot)?;
    let find =
        |what: &str| said.iter().find(|(name, _)| name == what).map_or("", |(_, detail)| detail.trim());
    for (run, status, text) in [
        ("untrusted", "1 ", "for a private certificate authority, set SSL_CERT_FILE"),
        ("store", "0 ", "it is set to the time of the crash"),
        ("ssh", "0", ""),
        ("killed", "137", ""),
        ("resumed", "0 ", "were there from an earlier upload"),
    ] {
        let told = find(run);
        ensure!(
            told.starts_with(status) && told.contains(text),
            "the run {run} ended with {told:?}; sshd's log: {}",
            sshd.server.log()
        );
        println!("ok   {run}: {told}");
    }
    ensure!(!store.object("untrusted").exists(), "a server without a trusted certificate has a dump");
    let object = store.directory.join("objects/crashes").join(KEY);
    let files = [object, received.join("dump.flat"), received.join("dump.flat.large")];
    for dump in &files {
        let info =
            Command::new(pagehaul).args(["info", "--json"]).arg(dump).output().context("running pagehaul")?;
        let text = String::from_utf8_lossy(&info.stdout);
        ensure!(text.contains("\"complete\": true"), "{} is not complete: {text}", dump.display());
        let log = Command::new(pagehaul).arg("dmesg").arg(dump).output().context("running pagehaul")?;
        let text = String::from_utf8_lossy(&log.stdout);
        ensure!(text.contains("sysrq triggered crash"), "{} has another log", dump.display());
    }
    ensure!(read(&files[0])? == read(&files[1])?, "the store and ssh got different bytes");
    let sizes = files.iter().map(|path| Ok((fs::metadata(path)?.len() >> 20).to_string()));
    let sizes = sizes.collect::<Result<Vec<_>>>()?.join(", ");
    println!(
        "ok   clock of {CLOCK}, {} in the capture kernel: dumps of {sizes} MiB, complete",
        find("clock")
    );
    Ok(())
}

/// An S3 server with TLS on the loopback interface, until it is dropped.
struct Store {
    /// Runs as long as this.
    _server: Server,
    directory: PathBuf,
    port: u16,
}

impl Store {
    fn start(server: &Path, directory: &Path) -> Result<Self> {
        cache::make(&directory.join("objects/crashes"))?;
        cache::make(&directory.join("attributes"))?;
        let made = Command::new("sh")
            .args(["-c", CERTIFICATE, "certificate.sh"])
            .arg(directory)
            .args([HOST, "30"])
            .stderr(Stdio::null())
            .status();
        ensure!(made.context("running openssl")?.success(), "openssl made no certificate");
        let port = free_port()?;
        let [id, secret] = ACCESS;
        let mut command = Command::new(server);
        command
            .args(["--access", id, "--secret", secret, "--region", "us-east-1"])
            .args(["--port", &format!("127.0.0.1:{port}")])
            .arg("--cert")
            .arg(directory.join("server.pem"))
            .arg("--key")
            .arg(directory.join("server.key"))
            .args(["posix", "--sidecar"])
            .args([directory.join("attributes"), directory.join("objects")]);
        let server = Server::start(&mut command, &directory.join("log"), port, libc::SIGKILL)?;
        Ok(Store { _server: server, directory: directory.to_owned(), port })
    }

    fn object(&self, suffix: &str) -> PathBuf {
        self.directory.join("objects/crashes").join(format!("{KEY}.{suffix}"))
    }
}
