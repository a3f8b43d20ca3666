//! Mappings of pagehaul's own, by which it learns what the kernel prints of each flag.

use std::collections::HashSet;
use std::ffi::c_void;
use std::io;
use std::ptr;

use rustix::mm::{
    Advice, MapFlags, MlockFlags, ProtFlags, UserfaultfdFlags, madvise, mlock_with, mmap_anonymous, munmap,
    userfaultfd,
};

use super::super::userfault::Userfault;
use super::flag_reader::{FlagReader, Flags};
use super::flags::Names;
use crate::mapping;
use crate::units::{Pid, page_size};

/// `MADV_GUARD_INSTALL` (Linux 6.13): stacks of threads have it with newer C libraries.
const GUARD_INSTALL: i32 = 102;
/// `MAP_DROPPABLE` (Linux 6.11), in place of `MAP_PRIVATE`.
const DROPPABLE: MapFlags = MapFlags::from_bits_retain(8);
/// The system call mseal (Linux 6.10), on all machines.
const MSEAL: libc::c_long = 462;

/// Learns the letters from all mappings of this program, and from some that have the flags which programs give to theirs.
pub(super) fn names(reader: &FlagReader) -> Result<Names, String> {
    let probes = Probe::all();
    let me = std::process::id() as Pid;
    let read = || reader.read(me).map_err(|error| format!("the BPF program cannot be run: {error}"));
    let found = read()?;
    let printed = mapping::read(me, me).map_err(|error| error.to_string())?;
    // Other threads may change mappings meanwhile.
    let unchanged: HashSet<Flags> = read()?.into_iter().collect();
    drop(probes);
    let mut names = Names::default();
    for flags in found.iter().filter(|flags| unchanged.contains(flags)) {
        let same = printed.iter().find(|mapping| mapping.range == (flags.start..flags.end));
        if let Some(mapping) = same {
            names.compare(flags.flags, &mapping.flags)?;
        }
    }
    Ok(names)
}

/// Memory that is mapped for nothing else.
struct Probe {
    address: *mut c_void,
    length: usize,
    /// Tracks writes to it; without it, the mapping loses the flag.
    userfault: Option<Userfault>,
}

impl Probe {
    /// What the system does not allow is left out.
    fn all() -> Vec<Self> {
        let (private, write) = (MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE);
        // Where pages have 16 KiB or more, the default size is another, and the mapping as long as that: it could not be unmapped.
        let (page, huge) = (page_size() as usize, 2 << 20);
        let advices = [
            Advice::LinuxDontFork,
            Advice::LinuxDontDump,
            Advice::LinuxHugepage,
            Advice::LinuxNoHugepage,
            Advice::LinuxMergeable,
            Advice::LinuxWipeOnFork,
            Advice::Sequential,
            Advice::Random,
        ];
        let advised = advices.into_iter().filter_map(|advice| {
            let probe = Self::new(page, write, private)?;
            // SAFETY: nothing else knows of this memory.
            unsafe { madvise(probe.address, page, advice) }.ok()?;
            Some(probe)
        });
        let guarded = Self::new(page, write, private).filter(|probe| {
            // SAFETY: nothing else knows of this memory.
            unsafe { libc::madvise(probe.address, page, GUARD_INSTALL) == 0 }
        });
        // It stays for good: it cannot be unmapped any more.
        let sealed = Self::new(page, ProtFlags::READ, private).filter(|probe| {
            // SAFETY: nothing else knows of this memory.
            unsafe { libc::syscall(MSEAL, probe.address, page, 0) == 0 }
        });
        let locked = [MlockFlags::empty(), MlockFlags::ONFAULT].into_iter().filter_map(|flags| {
            let probe = Self::new(page, write, private)?;
            // SAFETY: nothing else knows of this memory.
            unsafe { mlock_with(probe.address, page, flags) }.ok()?;
            Some(probe)
        });
        let mapped = [
            (page, write, private | MapFlags::NORESERVE),
            (page, write, private | MapFlags::GROWSDOWN),
            (page, write, DROPPABLE),
            (page, write, MapFlags::SHARED),
            (page, ProtFlags::READ, MapFlags::SHARED),
            (page, ProtFlags::empty(), private),
            (page, ProtFlags::EXEC, private),
            (huge, write, private | MapFlags::NORESERVE | MapFlags::HUGETLB | MapFlags::HUGE_2MB),
        ];
        let mapped =
            mapped.into_iter().filter_map(|(length, access, flags)| Self::new(length, access, flags));
        let mut tracked = Self::new(page, write, private);
        if let Some(probe) = &mut tracked {
            probe.userfault = probe.track().ok();
        }
        advised.chain(guarded).chain(sealed).chain(locked).chain(mapped).chain(tracked).collect()
    }

    fn new(length: usize, access: ProtFlags, flags: MapFlags) -> Option<Self> {
        // SAFETY: a new mapping, where none is.
        let address = unsafe { mmap_anonymous(ptr::null_mut(), length, access, flags) }.ok()?;
        Some(Self { address, length, userfault: None })
    }

    /// Tracks writes to it, as to the memory of the processes.
    fn track(&self) -> io::Result<Userfault> {
        let start = self.address.addr() as u64;
        // SAFETY: it makes a descriptor.
        let userfault = Userfault::new(unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC) }?)?;
        userfault.register(&(start..start + self.length as u64))?;
        Ok(userfault)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nothing else knows of it.
        let _ = unsafe { munmap(self.address, self.length) };
    }
}
