//! Describing core files.

use std::path::Path;

use pagehaul_elfcore::{ElfError, ProgramHeader, notes};
use serde::Serialize;

use crate::core_file::{CoreFile, MAX_NOTES};
use crate::error::ProcessError;
use crate::units::Pid;

/// The message for zstd without a table of frames.
pub(crate) const NO_TABLE: &str = "it is zstd, but has no table of frames at its end: it is incomplete, truncated, or not a \
                                   core written by pagehaul; `zstd -d` decompresses what it holds";

/// The description of a core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoreInfo {
    /// "ELF core" or "ELF core in zstd frames".
    pub format: &'static str,
    /// Why it is not complete; none if it is.
    pub incomplete_because: Option<String>,
    /// The process.
    pub pid: Pid,
    pub name: String,
    /// Its arguments, at most 79 bytes.
    pub arguments: String,
    pub threads: u64,
    pub mappings: u64,
    /// Bytes of these.
    pub mapped_bytes: u64,
    /// Bytes of these that are in the core, holes included.
    pub held_bytes: u64,
    pub file_bytes: u64,
    /// zstd frames.
    pub frames: u64,
}

/// Describes a core of a process. None if the file is something else (a vmcore too is an ELF core, but of no process).
pub fn describe(path: &Path) -> Result<Option<CoreInfo>, ProcessError> {
    let core = CoreFile::open(path)?;
    let damaged = |what: String| ProcessError::Damaged { path: path.to_owned(), what };
    if core.lacks_table() {
        return Err(damaged(NO_TABLE.into()));
    }
    let headers = match core.headers() {
        Ok(headers) => headers,
        Err(error) if core.frames.is_some() || matches!(error, ElfError::Read { .. }) => {
            return Err(damaged(error.to_string()));
        }
        Err(_) => return Ok(None),
    };
    let bytes = core.read(headers.note.offset, headers.note.file_size.min(MAX_NOTES));
    let bytes = bytes.map_err(|error| damaged(error.to_string()))?;
    let Some(process) = notes::process(&bytes) else { return Ok(None) };
    let text = |range: std::ops::Range<usize>| {
        let bytes = process.desc.get(range).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    // `pr_pid`, `pr_fname` and `pr_psargs` of `struct elf_prpsinfo`, and of `struct compat_elf_prpsinfo` (<linux/elfcore-compat.h>).
    let (id, name) = if headers.wide { (24, 40) } else { (12, 28) };
    let pid = process.desc.get(id..id + 4).and_then(|id| id.try_into().ok()).map_or(0, i32::from_le_bytes);
    let sum =
        |part: fn(&ProgramHeader) -> u64| headers.loads.iter().map(part).fold(0u64, u64::saturating_add);
    Ok(Some(CoreInfo {
        format: if core.frames.is_some() { "ELF core in zstd frames" } else { "ELF core" },
        incomplete_because: core.incomplete_because(&headers),
        pid,
        name: text(name..name + 16),
        arguments: text(name + 16..name + 96),
        threads: u64::from(notes::cpu_count(&bytes)),
        mappings: headers.loads.len() as u64,
        mapped_bytes: sum(|load| load.memory_size),
        held_bytes: sum(|load| load.file_size),
        file_bytes: core.size,
        frames: core.frames.as_ref().map_or(0, |frames| frames.len() as u64),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note as ELF has it.
    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let padded = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let name_bytes = [name, &[0]].concat();
        let head = [name_bytes.len() as u32, desc.len() as u32, kind].map(u32::to_le_bytes).concat();
        [head, padded(&name_bytes), padded(desc)].concat()
    }

    /// `struct elf_prpsinfo`.
    fn process(pid: i32, name: &[u8]) -> Vec<u8> {
        let mut desc = vec![0; 136];
        desc[24..28].copy_from_slice(&pid.to_le_bytes());
        desc[40..40 + name.len()].copy_from_slice(name);
        note(b"CORE", notes::NT_PRPSINFO, &desc)
    }

    #[test]
    fn cores_of_32_bits_are_described() {
        // `struct compat_elf_prpsinfo` of i386.
        let mut desc = vec![0; 124];
        desc[12..16].copy_from_slice(&7_i32.to_le_bytes());
        desc[28..31].copy_from_slice(b"old");
        desc[44..49].copy_from_slice(b"old 1");
        let notes = note(b"CORE", notes::NT_PRPSINFO, &desc);
        let mut core = b"\x7fELF\x01\x01\x01".to_vec();
        core.resize(116, 0);
        let mut set = |at: usize, value: u32| core[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let (length, page) = (notes.len() as u32, 4096);
        // Type and machine, the table, its entries; then kind, offset, address, sizes of the notes and of a page.
        let header = [(16, 4 | 3 << 16), (28, 52), (42, 32 | 2 << 16)];
        let of_notes = [(52, 4), (56, 116), (68, length)];
        let of_page = [(84, 1), (88, page), (92, page), (100, page), (104, page)];
        for (at, value) in header.into_iter().chain(of_notes).chain(of_page) {
            set(at, value);
        }
        core.extend(&notes);
        core.resize(2 * 4096, 1);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("core");
        std::fs::write(&path, &core).unwrap();
        let info = describe(&path).unwrap().unwrap();
        assert_eq!((info.pid, &*info.name, &*info.arguments, info.mappings), (7, "old", "old 1", 1));
        assert_eq!(info.incomplete_because, None);
        std::fs::write(&path, &core[..core.len() - 1]).unwrap();
        let why = describe(&path).unwrap().unwrap().incomplete_because;
        assert!(why.is_some_and(|why| why.contains("1 bytes are missing")));
    }

    #[test]
    fn kcore_is_no_core_of_a_process() {
        let info = note(b"VMCOREINFO", 0, b"OSRELEASE=6.1\n");
        assert!(notes::process(&process(7, b"vmlinux")).is_some());
        assert!(notes::process(&process(0, b"sh")).is_some());
        assert!(notes::process(&process(0, b"vmlinux")).is_none());
        assert!(notes::process(&[process(0, b"vmlinux"), info.clone()].concat()).is_none());
        assert!(notes::process(&info).is_none());
    }
}
