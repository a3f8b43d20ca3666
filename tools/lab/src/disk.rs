//! Makes disk images, sparse files with or without ext4, and reads them.

use crate::tools::Tools;
use anyhow::{Context, Result, bail};
use lab_guest::plan::MANIFEST_MAGIC;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk of a guest.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Serial number by which the guest finds it.
    pub serial: &'static str,
    /// Image file.
    pub path: PathBuf,
    /// Maximum write rate in bytes per second.
    pub write_rate: Option<u64>,
    /// Log of all requests, if they are recorded.
    pub log: Option<PathBuf>,
}

impl Disk {
    /// Copies the disk, and records all further requests in a log.
    pub fn record(&mut self) -> Result<()> {
        let initial = initial(&self.path);
        let output = Command::new("cp").arg("--sparse=always").args([&self.path, &initial]).output();
        let output = output.context("running cp")?;
        if !output.status.success() {
            bail!("copying {}: {}", self.path.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
        let log = log(&self.path);
        // QEMU does not extend the log.
        let room = fs::metadata(&self.path).map(|meta| 2 * meta.len() + (1 << 30));
        File::create(&log)
            .and_then(|file| file.set_len(room?))
            .with_context(|| format!("making {}", log.display()))?;
        self.log = Some(log);
        Ok(())
    }
}

/// Returns the path of a recorded disk's initial content.
pub(crate) fn initial(disk: &Path) -> PathBuf {
    disk.with_extension("before")
}

/// Returns the path of a recorded disk's log.
pub(crate) fn log(disk: &Path) -> PathBuf {
    disk.with_extension("writes")
}

/// Makes an empty disk.
pub fn raw(directory: &Path, serial: &'static str, bytes: u64) -> Result<Disk> {
    let path = directory.join(format!("{serial}.disk"));
    File::create(&path)
        .and_then(|f| f.set_len(bytes))
        .with_context(|| format!("making {}", path.display()))?;
    Ok(Disk { serial, path, write_rate: None, log: None })
}

/// ext4 features of a disk for one boot: no journal, and no checksums, which need a module. 5.10 does not know the
/// last.
const FOR_ONE_BOOT: &str = "^has_journal,^metadata_csum,^orphan_file";
/// ext4 features of a disk that has to survive power cuts.
const FOR_POWER_CUTS: &str = "has_journal,^metadata_csum,^orphan_file";

/// Makes a disk with ext4 and the content of `source`, if given.
pub fn ext4(
    tools: &Tools,
    directory: &Path,
    serial: &'static str,
    bytes: u64,
    block: u32,
    source: Option<&Path>,
) -> Result<Disk> {
    let disk = raw(directory, serial, bytes)?;
    format(tools, &disk, FOR_ONE_BOOT, block, source)?;
    Ok(disk)
}

/// Makes a disk with ext4 and a journal, to survive power cuts.
pub fn ext4_with_journal(tools: &Tools, directory: &Path, serial: &'static str, bytes: u64) -> Result<Disk> {
    let disk = raw(directory, serial, bytes)?;
    format(tools, &disk, FOR_POWER_CUTS, 4096, None)?;
    Ok(disk)
}

fn format(tools: &Tools, disk: &Disk, features: &str, block: u32, source: Option<&Path>) -> Result<()> {
    let mut arguments: Vec<String> = [
        "-q",
        "-F",
        "-O",
        features,
        // Lazy initialization in the background would disturb measurements.
        "-E",
        "lazy_itable_init=0,nodiscard",
        "-m",
        "0",
        "-b",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(block.to_string());
    match source {
        Some(source) => arguments.extend(["-d".into(), source.display().to_string()]),
        None => arguments.extend(["-N".into(), "1024".into()]),
    }
    arguments.push(disk.path.display().to_string());
    tools.run("mkfs.ext4", &arguments).with_context(|| format!("making {}", disk.path.display()))?;
    Ok(())
}

/// Lets files of an ext4 disk be encrypted (fscrypt).
pub fn allow_encryption(tools: &Tools, disks: &[Disk], serial: &str) -> Result<()> {
    let disk = disks.iter().find(|disk| disk.serial == serial).context("a disk of the guest")?;
    tools.run("tune2fs", &["-O", "encrypt", &disk.path.display().to_string()])?;
    Ok(())
}

/// Repairs an ext4 disk after a power cut, as a boot does.
pub fn recover(tools: &Tools, image: &Path) -> Result<()> {
    let mut command = tools.command("e2fsck")?;
    let output = command.args(["-f", "-y"]).arg(image).output().context("running e2fsck")?;
    // Exit codes 1 and 2: errors were corrected.
    if !matches!(output.status.code(), Some(0..=2)) {
        bail!("e2fsck cannot repair {}: {}", image.display(), String::from_utf8_lossy(&output.stdout).trim());
    }
    Ok(())
}

/// Copies one file from an ext4 disk. Returns whether it exists.
pub fn extract_file(tools: &Tools, image: &Path, name: &str, to: &Path) -> Result<bool> {
    let _ = fs::remove_file(to);
    tools.run("debugfs", &["-R", &format!("dump /{name} {}", to.display()), &image.display().to_string()])?;
    Ok(to.exists())
}

/// Copies all files from an ext4 disk.
pub fn extract_all(tools: &Tools, disk: &Disk, into: &Path) -> Result<()> {
    let request = format!("rdump / {}", into.display());
    // debugfs exits with 0 even on errors; missing files show them.
    tools.run("debugfs", &["-R", &request, &disk.path.display().to_string()])?;
    let _ = fs::remove_dir(into.join("lost+found"));
    Ok(())
}

/// Reads the manifest that the first kernel wrote.
pub fn read_manifest(disk: &Disk) -> Result<Vec<u8>> {
    let fail = || format!("reading {}", disk.path.display());
    let mut file = File::open(&disk.path).with_context(fail)?;
    let mut header = [0; 16];
    file.read_exact(&mut header).with_context(fail)?;
    let (magic, length) = header.split_at(8);
    if magic != MANIFEST_MAGIC {
        bail!("the guest crashed without writing its manifest");
    }
    let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
    let size = file.metadata().with_context(fail)?.len();
    if length > size.saturating_sub(4096) {
        bail!("the guest's manifest of {length} bytes is longer than its disk");
    }
    let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut content, 4096).with_context(fail)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_oversized_manifest_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let disk = raw(directory.path(), "manifest", 8192).unwrap();
        assert!(read_manifest(&disk).unwrap_err().to_string().contains("without writing"));
        let file = File::options().write(true).open(&disk.path).unwrap();
        let header = |length: u64| [MANIFEST_MAGIC, length.to_le_bytes()].concat();
        file.write_all_at(&header(u64::MAX), 0).unwrap();
        assert!(read_manifest(&disk).unwrap_err().to_string().contains("longer than its disk"));
        file.write_all_at(&header(2), 0).unwrap();
        file.write_all_at(b"{}", 4096).unwrap();
        assert_eq!(read_manifest(&disk).unwrap(), b"{}");
    }
}
