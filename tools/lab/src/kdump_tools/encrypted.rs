//! Dumps and logs of a guest with a file of recipients: age decrypts them, and nothing else reads them.

use super::{Guest, findings};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A secret key of age, and one of another.
const KEY: &str = "age.txt";
const OTHER: &str = "other.txt";
/// How a file in age's format begins.
const MAGIC: &[u8] = b"age-encryption.org/v1\n";
/// Findings that check.sh injects where a file of recipients is.
const FAULTS: [&str; 2] = ["unusable-recipients", "not-encrypted"];

fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/encryption/tests/data").join(name)
}

/// The file of recipients.
pub(super) fn recipients() -> Result<String> {
    let text = fs::read_to_string(key(KEY)).with_context(|| key(KEY).display().to_string())?;
    let public = text.lines().find_map(|line| line.strip_prefix("# public key: "));
    Ok(format!("# of the lab\n{}\n", public.context("the key has no public one")?))
}

/// Checks what `kdump check` found in the guest: that its dumps are encrypted, and the faults of that.
pub(super) fn check_findings(guest: &Guest<'_>, said: &[(String, String)]) -> Result<()> {
    findings::check_good(guest, said)?;
    let keys = said.iter().find(|(what, _)| what == "keys").map_or("", |(_, detail)| detail.as_str());
    ensure!(keys.contains("has 1 keys"), "kdump check does not see the recipients: {keys:?}");
    let found = findings::faults(said)?;
    ensure!(found == FAULTS, "the guest injected {found:?}");
    println!("ok   {}: kdump check sees the recipients, and {} faults", guest.release.suite, FAULTS.len());
    Ok(())
}

/// Checks that the dump and the log next to it are encrypted, and that their key alone opens them. Returns the
/// decrypted dump.
pub(super) fn check(dump: &Path, pagehaul: &Path) -> Result<PathBuf> {
    let directory = dump.parent().context("a dump has a directory")?;
    let mut files = 0;
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())?.flatten() {
        let content = fs::read(entry.path()).with_context(|| entry.path().display().to_string())?;
        ensure!(content.starts_with(MAGIC), "{} is not encrypted", entry.path().display());
        files += 1;
    }
    ensure!(files == 2, "{} has {files} files, expected a dump and its log", directory.display());
    let name = dump.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let log = directory.join(name.replacen("dump.", "dmesg.", 1));
    let text = String::from_utf8_lossy(&decrypt(&log, &key(KEY))?.stdout).into_owned();
    ensure!(text.contains("sysrq triggered crash"), "the decrypted log has no crash: {text}");
    ensure!(!decrypt(dump, &key(OTHER))?.status.success(), "another key decrypts {}", dump.display());

    let info = |identity: Option<&Path>| {
        let mut command = Command::new(pagehaul);
        command.env_remove("PAGEHAUL_IDENTITY").args(["info", "--json"]).arg(dump);
        command.args(identity.map(|key| format!("--identity={}", key.display())));
        command.output().context("running pagehaul")
    };
    for identity in [None, Some(key(OTHER))] {
        let output = info(identity.as_deref())?;
        ensure!(!output.status.success(), "pagehaul reads {} without its key", dump.display());
    }
    let output = info(Some(&key(KEY)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        text.contains("\"complete\": true") && text.contains("\"encrypted\": true"),
        "pagehaul info: {text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let plain = directory.join("plain");
    let output = decrypt(dump, &key(KEY))?;
    ensure!(output.status.success(), "age: {}", String::from_utf8_lossy(&output.stderr));
    fs::write(&plain, output.stdout).with_context(|| plain.display().to_string())?;
    Ok(plain)
}

fn decrypt(file: &Path, identity: &Path) -> Result<Output> {
    Command::new("age").arg("-d").arg("-i").args([identity, file]).output().context("running age")
}
