//! Huge pages (hugetlbfs) that processes have, and that a restart needs.
//!
//! A restart reserves all pages of a mapping before it reads what they hold. The contents of private mappings CRIU reads at offsets in
//! its image (`preadv` in its restorer), which a pipe has none of: such images are given to it as files.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pagehaul_run::memory;

use super::chain::Chain;
use super::protobuf::{Value, field, message};
use super::tree::Process;
use crate::error::ProcessError;
use crate::units::Pid;
use crate::{mapping, procfs};

/// Bytes of the magic numbers of images with a message.
const MAGIC: usize = 8;
/// CRIU's image of memfds, and fields of an entry (images/memfd.proto): size; flags, if it has huge pages.
const MEMFDS: &str = "memfd.img";
const MEMFD_SIZE: u64 = 4;
const MEMFD_FLAGS: u64 = 8;
/// Field of the image of a process's memory (images/mm.proto): a mapping. Fields of that (images/vma.proto).
const MAPPING: u64 = 14;
const START: u64 = 1;
const END: u64 = 2;
const SEGMENT: u64 = 4;
const FLAGS: u64 = 6;
const STATUS: u64 = 7;
/// `MAP_PRIVATE`, `MAP_NORESERVE` and `MAP_HUGETLB`; where the logarithm of the pages' size is, 0 for the default one
/// (`MAP_HUGE_SHIFT`).
const PRIVATE: u64 = 2;
const NO_RESERVE: u64 = 0x4000;
const HUGE: u64 = 0x4_0000;
const SIZE: u32 = 26;
/// `VMA_ANON_SHARED` and `VMA_AREA_MEMFD` of criu/include/image.h.
const SHARED: u64 = 1 << 8;
const IN_MEMFD: u64 = 1 << 14;
/// Where the kernel has its counts of huge pages.
const COUNTS: &str = "/sys/kernel/mm/hugepages";
/// How the name of a mapped memfd begins.
const MEMFD: &[u8] = b"/memfd:";
/// What CRIU knows of the kernel.
const RECOGNIZED: &str = "/run/criu.kdat";
/// `HUGETLBFS_MAGIC` of include/uapi/linux/magic.h.
const FILE_SYSTEM: u64 = 0x9584_58f6;

/// The huge pages of a checkpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HugePages {
    /// Bytes that a restart reserves, by the logarithm of the pages' size; 0 is the default size.
    needed: BTreeMap<u64, u64>,
    /// Whether private mappings have some.
    pub(super) are_private: bool,
}

impl HugePages {
    /// Those of all processes of a checkpoint.
    pub(super) fn of(chain: &Chain) -> Result<Self, ProcessError> {
        let mut this = Self::default();
        let mut segments = HashSet::new();
        for (number, image) in chain.images.iter().enumerate() {
            let is_understood = match image.name.as_str() {
                MEMFDS => this.add_memfds(&chain.content(number)?),
                name if name.starts_with("mm-") => this.add_memory(&chain.content(number)?, &mut segments),
                _ => Some(()),
            };
            is_understood.ok_or_else(|| ProcessError::Damaged {
                path: chain.newest().path.clone(),
                what: format!("its {} is invalid: it is not an image of CRIU 4", image.name),
            })?;
        }
        Ok(this)
    }

    fn add(&mut self, size: u64, bytes: u64) {
        let needed = self.needed.entry(size).or_default();
        *needed = needed.saturating_add(bytes);
    }

    fn add_memfds(&mut self, image: &[u8]) -> Option<()> {
        let mut rest = image.get(MAGIC..)?;
        while !rest.is_empty() {
            let (mut entry, after) = message(rest)?;
            rest = after;
            let (mut bytes, mut flags) = (0, None);
            while !entry.is_empty() {
                let (number, value, after) = field(entry)?;
                entry = after;
                match (number, value) {
                    (MEMFD_SIZE, Value::Number(value)) => bytes = value,
                    (MEMFD_FLAGS, Value::Number(value)) => flags = Some(value),
                    _ => {}
                }
            }
            if let Some(flags) = flags {
                self.add(flags >> SIZE & 0x3f, bytes);
            }
        }
        Some(())
    }

    fn add_memory(&mut self, image: &[u8], segments: &mut HashSet<u64>) -> Option<()> {
        let Some(rest) = image.get(MAGIC..).filter(|rest| !rest.is_empty()) else { return Some(()) };
        let (mut memory, _) = message(rest)?;
        while !memory.is_empty() {
            let (number, value, after) = field(memory)?;
            memory = after;
            if let (MAPPING, Value::Bytes(mapping)) = (number, value) {
                self.add_mapping(mapping, segments)?;
            }
        }
        Some(())
    }

    fn add_mapping(&mut self, mut mapping: &[u8], segments: &mut HashSet<u64>) -> Option<()> {
        let mut fields = [0; 8];
        while !mapping.is_empty() {
            let (number, value, after) = field(mapping)?;
            mapping = after;
            if let (Some(place), Value::Number(value)) = (fields.get_mut(number as usize), value) {
                *place = value;
            }
        }
        let of = |number: u64| fields[number as usize];
        let (bytes, flags, status) = (of(END).saturating_sub(of(START)), of(FLAGS), of(STATUS));
        if flags & HUGE == 0 {
            return Some(());
        }
        if flags & PRIVATE != 0 {
            self.are_private = true;
        }
        let reserves = match flags & PRIVATE {
            0 => status & SHARED != 0 && status & IN_MEMFD == 0 && segments.insert(of(SEGMENT)),
            _ => flags & NO_RESERVE == 0,
        };
        if reserves {
            self.add(flags >> SIZE & 0x3f, bytes);
        }
        Some(())
    }

    /// Fails unless as many are free.
    pub(super) fn check(&self) -> Result<(), ProcessError> {
        for (&size, &bytes) in self.needed.iter().filter(|(_, bytes)| **bytes > 0) {
            let size = if size == 0 { default_size() } else { 1u64.checked_shl(size as u32).unwrap_or(0) };
            let Some(needed) = (size > 0).then(|| bytes.div_ceil(size)) else { continue };
            let directory = directory(size);
            let free = free(&directory);
            if free < needed {
                return Err(ProcessError::Refused(format!(
                    "the processes need huge pages of {} KiB: {needed}, of which {free} are free; make {} more \
                     ({}/nr_hugepages)",
                    size >> 10,
                    needed - free,
                    directory.display()
                )));
            }
        }
        Ok(())
    }
}

/// Where the kernel has its counts of huge pages of a size.
fn directory(size: u64) -> PathBuf {
    Path::new(COUNTS).join(format!("hugepages-{}kB", size >> 10))
}

/// The default size of huge pages.
fn default_size() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory::bytes_of(&text, "Hugepagesize:").unwrap_or(0)
}

/// How many huge pages of the size that a directory of the kernel stands for can be reserved.
fn free(directory: &Path) -> u64 {
    let number = |name: &str| -> u64 {
        let text = fs::read_to_string(directory.join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let more = number("nr_overcommit_hugepages").saturating_sub(number("surplus_hugepages"));
    number("free_hugepages").saturating_sub(number("resv_hugepages")) + more
}

/// About how many bytes of huge pages CRIU saves of these processes: Pss leaves them out. Those of memfds and shared memory count once;
/// files that have a name are not saved. Refuses processes whose huge pages CRIU would not recognize.
pub(super) fn resident(tree: &[Process]) -> Result<u64, ProcessError> {
    let (mut files, mut systems, mut all) = (HashSet::new(), BTreeMap::new(), 0u64);
    for &Process { pid, .. } in tree {
        let status = procfs::read_text(pid, "status").unwrap_or_default();
        // Linux 4.4 (commit 5d317b2b6536, "mm: hugetlb: proc: add HugetlbPages field to /proc/PID/status").
        let Some(mut own) = memory::bytes_of(&status, "HugetlbPages:").filter(|bytes| *bytes > 0) else {
            continue;
        };
        let (mappings, mut of_process) = (mapping::read_plain(pid, pid).unwrap_or_default(), HashSet::new());
        for mapping in mappings.iter().filter(|mapping| mapping.has_file()) {
            let link = mapping.link(pid);
            let Ok(file) = link.metadata() else { continue };
            // The size of its pages.
            let size = *systems.entry(file.dev()).or_insert_with(|| {
                let system = rustix::fs::statfs(&link).ok()?;
                (system.f_type as u64 == FILE_SYSTEM).then_some(system.f_bsize as u64)
            });
            let identity = (file.dev(), file.ino());
            let Some(size) = size.filter(|_| of_process.insert(identity)) else { continue };
            if mapping.is_deleted() {
                let free = free(&directory(size));
                recognizable(pid, size, free, Path::new(RECOGNIZED).exists())?;
                // Pages of a private mapping are the process's: its file has none.
                if mapping.name.starts_with(MEMFD) || file.blocks() > 0 {
                    readable(pid, size, file.len(), free)?;
                }
            }
            // In units of 512 bytes; private mappings have pages besides, which are not the file's.
            let bytes = file.blocks() << 9;
            own = own.saturating_sub(bytes);
            if mapping.is_deleted() && files.insert(identity) {
                all = all.saturating_add(bytes);
            }
        }
        all = all.saturating_add(own);
    }
    Ok(all)
}

/// CRIU finds out on which device such memory is by a mapping of one page, and keeps that in a file for later (`kerndat_get_hugetlb_dev()`,
/// criu/kerndat.c). Otherwise it takes the memory for a file whose file system it does not find.
fn recognizable(pid: Pid, size: u64, free: u64, is_known: bool) -> Result<(), ProcessError> {
    if free > 0 || is_known {
        return Ok(());
    }
    Err(ProcessError::Refused(format!(
        "process {pid} has huge pages of {} KiB, and no other one is free, which CRIU needs to recognize them; make one more \
         ({}/nr_hugepages)",
        size >> 10,
        directory(size).display()
    )))
}

/// CRIU reads memfds and shared memory of huge pages through a private mapping, for which the kernel reserves as many again, while the
/// processes are frozen ("Can't mmap shmem" of criu/shmem.c, 4.1).
fn readable(pid: Pid, size: u64, bytes: u64, free: u64) -> Result<(), ProcessError> {
    let needed = bytes.div_ceil(size.max(1));
    if free >= needed {
        return Ok(());
    }
    Err(ProcessError::Refused(format!(
        "process {pid} has shared memory or a memfd of {needed} huge pages of {} KiB, and CRIU needs as many free ones to read it, of \
         which there are {free}; make {} more ({}/nr_hugepages)",
        size >> 10,
        needed - free,
        directory(size).display()
    )))
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::{put, put_message};
    use super::*;
    use proptest::prelude::*;

    const HUGE_2M: u64 = HUGE | 21 << SIZE;

    /// An image of memory with mappings of these lengths, segments, flags and statuses.
    fn memory_of(mappings: &[[u64; 4]]) -> Vec<u8> {
        let (mut image, mut memory) = (vec![7; MAGIC], Vec::new());
        put(&mut memory, 1, Value::Number(0x40_0000));
        for [length, segment, flags, status] in mappings {
            let mut mapping = Vec::new();
            let numbers = [0x7f00_0000_0000, 0x7f00_0000_0000 + length, 0, *segment, 3, *flags, *status, 1];
            (1..).zip(numbers).for_each(|(number, value)| put(&mut mapping, number, Value::Number(value)));
            put(&mut memory, MAPPING, Value::Bytes(&mapping));
        }
        put_message(&mut image, &memory);
        image
    }

    fn needs(mappings: &[[u64; 4]]) -> (Vec<(u64, u64)>, bool) {
        let (mut all, mut segments) = (HugePages::default(), HashSet::new());
        // Two processes, the second one with the same segments.
        for _ in 0..2 {
            all.add_memory(&memory_of(mappings), &mut segments).unwrap();
        }
        (all.needed.into_iter().collect(), all.are_private)
    }

    #[test]
    fn mappings_that_reserve_huge_pages_are_found() {
        let (small, shared) = ([4096, 0, PRIVATE | 0x20, 0], 1);
        assert_eq!(needs(&[small]), (vec![], false));
        let bytes = 8 << 20;
        assert_eq!(needs(&[small, [bytes, 0, HUGE_2M | PRIVATE, 0]]), (vec![(21, 2 * bytes)], true));
        assert_eq!(needs(&[[bytes, 0, HUGE_2M | PRIVATE | NO_RESERVE, 0]]), (vec![], true));
        // A segment that both processes have; one in a memfd, which has its size; a file with a name.
        assert_eq!(needs(&[[bytes, 5, HUGE_2M | shared, SHARED]]), (vec![(21, bytes)], false));
        assert_eq!(needs(&[[bytes, 5, HUGE_2M | shared, SHARED | IN_MEMFD]]), (vec![], false));
        assert_eq!(needs(&[[bytes, 5, HUGE | shared, 1 << 7]]), (vec![], false));
        let mut all = HugePages::default();
        let mut image = vec![7; MAGIC];
        for flags in [None, Some(4 | 21 << SIZE), Some(4)] {
            let mut entry = Vec::new();
            put(&mut entry, 1, Value::Bytes(b"name"));
            put(&mut entry, MEMFD_SIZE, Value::Number(bytes));
            if let Some(flags) = flags {
                put(&mut entry, MEMFD_FLAGS, Value::Number(flags));
            }
            put_message(&mut image, &entry);
        }
        all.add_memfds(&image).unwrap();
        assert_eq!(all.needed.into_iter().collect::<Vec<_>>(), [(0, bytes), (21, bytes)]);
    }

    #[test]
    fn too_few_free_ones_are_refused() {
        HugePages::default().check().unwrap();
        let all = HugePages { needed: [(0, 1 << 60)].into(), are_private: false };
        let why = all.check().unwrap_err().to_string();
        assert!(
            why.starts_with("the processes need huge pages of ") && why.contains("nr_hugepages"),
            "{why}"
        );
        // A size that no machine has.
        let all = HugePages { needed: [(13, 1 << 20)].into(), are_private: false };
        assert!(all.check().unwrap_err().to_string().contains("of 8 KiB: 128, of which 0 are free"));
    }

    #[test]
    fn a_process_without_any_has_none() {
        assert_eq!(resident(&super::super::tree::list(std::process::id() as Pid).unwrap()).unwrap(), 0);
    }

    #[test]
    fn huge_pages_that_criu_would_not_recognize_are_refused() {
        recognizable(7, 2 << 20, 1, false).unwrap();
        recognizable(7, 2 << 20, 0, true).unwrap();
        let why = recognizable(7, 2 << 20, 0, false).unwrap_err().to_string();
        assert!(why.starts_with("process 7 has huge pages of 2048 KiB, and no other one is free"), "{why}");
        assert!(why.ends_with("(/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)"), "{why}");
    }

    #[test]
    fn shared_memory_for_which_criu_has_too_few_huge_pages_is_refused() {
        readable(7, 32 << 20, 96 << 20, 3).unwrap();
        let why = readable(7, 32 << 20, 96 << 20, 1).unwrap_err().to_string();
        assert_eq!(
            why,
            "process 7 has shared memory or a memfd of 3 huge pages of 32768 KiB, and CRIU needs as many free ones to read it, of which \
             there are 1; make 2 more (/sys/kernel/mm/hugepages/hugepages-32768kB/nr_hugepages)"
        );
    }

    proptest! {
        #[test]
        fn any_image_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut all = HugePages::default();
            let image = [&[7; MAGIC], &bytes[..]].concat();
            let _ = (all.add_memfds(&image), all.add_memory(&image, &mut HashSet::new()), all.check());
        }
    }
}
