//! CRIU's images as files, for what it cannot restore from pipes ([`super::huge_pages`]).

use std::fs::File;
use std::io::{self, Write};
use std::path::{Component, Path};

use pagehaul_run::{Phase, Progress};

use super::chain::Chain;
use super::container::Container;
use super::restore::{Rearmed, write_image};
use super::timers;
use crate::error::ProcessError;

/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of include/uapi/linux/magic.h.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Writes all images of a checkpoint to a directory. Those of an encrypted one only to memory.
pub(super) fn write(
    chain: &Chain,
    timers: Option<&Rearmed>,
    directory: &Path,
    threads: usize,
    progress: &Progress,
) -> Result<(), ProcessError> {
    let is_in_memory =
        || rustix::fs::statfs(directory).is_ok_and(|system| IN_MEMORY.contains(&(system.f_type as u64)));
    if chain.files().any(Container::is_encrypted) && !is_in_memory() {
        return Err(ProcessError::Refused(format!(
            "the checkpoint is encrypted, and CRIU restores its private huge pages from files only, which would be in the \
             clear in {}; set TMPDIR to a directory in memory, such as /dev/shm",
            directory.parent().unwrap_or(directory).display()
        )));
    }
    for (number, image) in chain.images.iter().enumerate() {
        if !is_file_name(&image.name) {
            let what = format!("{:?} is not the name of an image", image.name);
            return Err(ProcessError::Damaged { path: chain.newest().path.clone(), what });
        }
        let path = directory.join(&image.name);
        let failed =
            |source: io::Error| ProcessError::Output { path: path.clone(), action: "write to", source };
        let mut file = File::create_new(&path).map_err(failed)?;
        let written = match timers.filter(|_| image.name == timers::IMAGE) {
            Some(changed) => file.write_all(&changed.files),
            None => write_image(chain, number, threads, |bytes| {
                if progress.is_cancelled() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                progress.advance(Phase::Pack, bytes.len() as u64);
                file.write_all(bytes)
            })?,
        };
        if progress.is_cancelled() {
            return Err(ProcessError::Refused("stopped before anything was restarted".into()));
        }
        written.map_err(failed)?;
    }
    Ok(())
}

/// Whether a name stays in its directory.
fn is_file_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(parts.next(), Some(Component::Normal(part)) if part == name) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_directory() {
        assert!(is_file_name("pages-1.img") && is_file_name("..img"));
        for name in ["", ".", "..", "/etc/passwd", "../pages-1.img", "a/b", "a/", "./a"] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }
}
