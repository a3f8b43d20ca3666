//! Disk images: sparse files, some with ext4.

use crate::tools::Tools;
use anyhow::{Context, Result, bail};
use lab_guest::order::BOX_HEADER;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A disk of a guest.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Serial number, by which the guest finds it.
    pub serial: &'static str,
    /// Image file.
    pub path: PathBuf,
    /// Bytes per second it writes at most, where it is to be slow.
    pub write_rate: Option<u64>,
}

/// An empty disk of `bytes`.
pub fn raw(folder: &Path, serial: &'static str, bytes: u64) -> Result<Disk> {
    let path = folder.join(format!("{serial}.disk"));
    File::create(&path)
        .and_then(|f| f.set_len(bytes))
        .with_context(|| format!("making {}", path.display()))?;
    Ok(Disk { serial, path, write_rate: None })
}

/// A disk with ext4 on it, and the content of `source` if given.
pub fn ext4(
    tools: &Tools,
    folder: &Path,
    serial: &'static str,
    bytes: u64,
    block: u32,
    source: Option<&Path>,
) -> Result<Disk> {
    let disk = raw(folder, serial, bytes)?;
    let mut arguments: Vec<String> = [
        "-q",
        "-F",
        // Neither journal nor checksums: nothing here outlives one boot, and the checksums want a module. The last
        // is unknown to 5.10.
        "-O",
        "^has_journal,^metadata_csum,^orphan_file",
        // What is left for the kernel to initialise in the background would disturb measurements.
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
    Ok(disk)
}

/// Takes all files out of an ext4 disk.
pub fn take_out(tools: &Tools, disk: &Disk, into: &Path) -> Result<()> {
    let request = format!("rdump / {}", into.display());
    // debugfs ends well whatever happens; that it worked shows in the files.
    tools.run("debugfs", &["-R", &request, &disk.path.display().to_string()])?;
    let _ = fs::remove_dir(into.join("lost+found"));
    Ok(())
}

/// Reads what the first kernel put on its manifest disk.
pub fn open_box(disk: &Disk) -> Result<Vec<u8>> {
    let fail = || format!("reading {}", disk.path.display());
    let mut file = File::open(&disk.path).with_context(fail)?;
    let mut header = [0; 16];
    file.read_exact(&mut header).with_context(fail)?;
    let (magic, length) = header.split_at(8);
    if magic != BOX_HEADER {
        bail!("the guest crashed without leaving its manifest");
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
    fn a_box_without_content_or_with_too_much_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = raw(folder.path(), "manifest", 8192).unwrap();
        assert!(open_box(&disk).unwrap_err().to_string().contains("without leaving"));
        let file = File::options().write(true).open(&disk.path).unwrap();
        let header = |length: u64| [BOX_HEADER, length.to_le_bytes()].concat();
        file.write_all_at(&header(u64::MAX), 0).unwrap();
        assert!(open_box(&disk).unwrap_err().to_string().contains("longer than its disk"));
        file.write_all_at(&header(2), 0).unwrap();
        file.write_all_at(b"{}", 4096).unwrap();
        assert_eq!(open_box(&disk).unwrap(), b"{}");
    }
}
