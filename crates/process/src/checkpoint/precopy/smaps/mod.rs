//! `/proc/PID/smaps` of a frozen process, without the walk of its page tables.
//!
//! CRIU takes one thing from it that no other file has: the flags of mappings (`VmFlags`). For the sizes, which CRIU passes over, the
//! kernel looks at each page: 17 ms for each GiB, while the process is frozen. So CRIU is given `maps`, and in it the flags that a
//! BPF iterator reads (Linux 5.12; of one process: Linux 6.1).
//!
//! Which letters a bit has is not taken for granted: it is compared with what the kernel prints of mappings of pagehaul's own. A process
//! that has any other bit is left to the kernel.

mod bpf;
mod flag_reader;
mod flags;
mod probe;

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, openat};

use crate::checkpoint::losses;
use crate::checkpoint::tree::Process;
use crate::mapping::{self, Mapping};
use crate::units::Pid;
use flag_reader::{FlagReader, Flags};
use flags::Names;

/// The name by which CRIU opens the file in the directory of a process.
pub(super) const NAME: &CStr = c"smaps";
/// Nanoseconds for a question, and bytes at which the kernel looks in one: 17 ms for each GiB.
const QUESTION: u64 = 20_000;
const WALK: u64 = 64;
/// How the last line of `maps` begins on x86_64: a page of the kernel, which is no mapping of the process.
const VSYSCALL: &[u8] = b"ffffffffff600000-";
/// Its flags: for execution only, or readable with vsyscall=emulate (arch/x86/entry/vsyscall/vsyscall_64.c).
const VSYSCALL_FLAGS: [&str; 2] = ["ex ", "rd ex mr me "];

/// What is needed to answer.
pub(super) struct Smaps {
    reader: FlagReader,
    names: Names,
}

/// A file for CRIU, and of what it has the lines of mappings with flags that CRIU may not restore.
pub(super) struct Answered {
    pub(super) file: OwnedFd,
    pub(super) flagged: Vec<u8>,
}

impl Smaps {
    /// For processes that have `resident` bytes in memory. None if CRIU is faster without it. An error is the reason why this system
    /// cannot.
    pub(super) fn new(tree: &[Process], resident: u64) -> Result<Option<Self>, String> {
        // It costs a question for each file that CRIU opens, two for each file that is mapped.
        let plain = tree.iter().filter_map(|process| mapping::read_plain(process.pid, process.pid).ok());
        let files = plain.flatten().filter(Mapping::has_file).count() as u64;
        if files.saturating_mul(QUESTION) > resident / WALK {
            return Ok(None);
        }
        let reader = FlagReader::load()?;
        let names = probe::names(&reader)?;
        Ok(Some(Self { reader, names }))
    }

    /// Makes a file that has the lines of a process's maps, each with its flags. An error is the reason why they are not certain.
    /// `directory` is that of the process in /proc.
    pub(super) fn of(&self, pid: Pid, directory: impl AsFd) -> Result<Answered, String> {
        let mappings =
            self.reader.read(pid).map_err(|error| format!("its mappings cannot be read: {error}"))?;
        let maps = || {
            let maps = openat(directory, c"maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let mut text = Vec::new();
            File::from(maps).read_to_end(&mut text)?;
            Ok(text)
        };
        let maps = maps().map_err(|error: io::Error| format!("its maps cannot be read: {error}"))?;
        let (text, flagged) = text(&maps, &mappings, &self.names)?;
        let file = || {
            let mut file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
            file.write_all(&text)?;
            file.rewind()?;
            Ok(file.into())
        };
        let file =
            file().map_err(|error: io::Error| format!("there is no file for its mappings: {error}"))?;
        Ok(Answered { file, flagged })
    }
}

/// The lines of `maps`, each with its flags, and apart those with flags that CRIU may not restore.
fn text(maps: &[u8], mappings: &[Flags], names: &Names) -> Result<(Vec<u8>, Vec<u8>), String> {
    let differ = || "maps and the BPF iterator differ".to_owned();
    let (mut text, mut flagged) = (Vec::with_capacity(maps.len() * 2), Vec::new());
    let mut mappings = mappings.iter();
    for line in maps.split_inclusive(|byte| *byte == b'\n') {
        let flags = if line.starts_with(VSYSCALL) {
            let [execute, read] = VSYSCALL_FLAGS;
            if line.windows(6).any(|part| part == b" r-xp ") { read } else { execute }.to_owned()
        } else {
            let Flags { start, end, flags } = mappings.next().ok_or_else(differ)?;
            // The kernel pads addresses to eight digits.
            if !line.starts_with(format!("{start:08x}-{end:08x} ").as_bytes()) {
                return Err(differ());
            }
            names.of(*flags).ok_or_else(|| format!("the letters of flags {flags:#x} are not known"))?
        };
        let begin = text.len();
        text.extend_from_slice(line);
        text.extend_from_slice(b"VmFlags: ");
        text.extend_from_slice(flags.as_bytes());
        text.push(b'\n');
        if losses::has_any(&flags) {
            flagged.extend_from_slice(text.get(begin..).unwrap_or_default());
        }
    }
    match mappings.next() {
        None => Ok((text, flagged)),
        Some(_) => Err(differ()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::ptr;

    use rustix::mm::{Advice, MapFlags};

    use super::*;
    use crate::checkpoint::tree;
    use crate::units::page_size;

    fn names() -> Names {
        let mut names = Names::default();
        names.compare(0x73, &[*b"rd", *b"wr", *b"mr", *b"mw", *b"me"]).unwrap();
        names
    }

    #[test]
    fn lines_get_the_letters_of_their_mappings() {
        let maps = b"00400000-00402000 rw-p 00000000 fe:00 7    /a b [vsyscall]\n\
                     ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
        let mapping = |start, end, flags| Flags { start, end, flags };
        let names = names();
        let here = mapping(0x40_0000, 0x40_2000, 0x73);
        let expected = "00400000-00402000 rw-p 00000000 fe:00 7    /a b [vsyscall]\nVmFlags: rd wr mr mw me \n\
                        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n\
                        VmFlags: ex \n";
        assert_eq!(String::from_utf8(text(maps, &[here], &names).unwrap().0).unwrap(), expected);
        // One too few, one too many, another place, a bit that was not seen.
        assert!(text(maps, &[], &names).unwrap_err().contains("differ"));
        assert!(text(maps, &[here, here], &names).unwrap_err().contains("differ"));
        assert!(text(maps, &[mapping(0x40_0000, 0x40_1000, 0x73)], &names).unwrap_err().contains("differ"));
        let unseen = text(maps, &[mapping(0x40_0000, 0x40_2000, 0x2073)], &names).unwrap_err();
        assert_eq!(unseen, "the letters of flags 0x2073 are not known");
    }

    #[test]
    fn a_process_has_the_flags_that_the_kernel_prints() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It has loaded its libraries once it answers.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let (child_pid, me) = (child.id() as Pid, std::process::id() as Pid);
        // More mappings than the kernel gives at a time. Every other page is of another kind.
        let (pages, page) = (6000, page_size() as usize);
        let access = rustix::mm::ProtFlags::READ;
        // SAFETY: a new mapping, where none is.
        let many =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), pages * page, access, MapFlags::PRIVATE) };
        let many = many.unwrap();
        for number in (0..pages).step_by(2) {
            // SAFETY: a page of the mapping, which nothing else knows of.
            unsafe { rustix::mm::madvise(many.byte_add(number * page), page, Advice::LinuxDontDump) }
                .unwrap();
        }
        let made = Smaps::new(&[], 1 << 30);
        if let Ok(Some(smaps)) = &made {
            let directory = File::open(format!("/proc/{child_pid}")).unwrap();
            let mut text = Vec::new();
            File::from(smaps.of(child_pid, &directory).unwrap().file).read_to_end(&mut text).unwrap();
            let of = |mappings: Vec<Mapping>| -> Vec<_> {
                let letters =
                    |m: &Mapping| m.flags.iter().filter(|flag| *flag != b"sd").copied().collect::<Vec<_>>();
                mappings.iter().map(|m| (m.range.clone(), m.name.clone(), letters(m))).collect()
            };
            let theirs = of(mapping::read(child_pid, child_pid).unwrap());
            assert_eq!(of(mapping::parse(&text).unwrap()), theirs);
            assert!(theirs.len() > 5);
            let start = many.addr() as u64;
            let own = smaps.reader.read(me).unwrap();
            let own =
                own.iter().filter(|flags| (start..start + (pages * page) as u64).contains(&flags.start));
            // The last page may be one mapping with what follows it.
            assert!((pages - 1..=pages).contains(&own.count()));
            // The mappings of another process, and of one that is not there.
            assert!(smaps.of(me, &directory).err().unwrap().contains("differ"));
            assert!(smaps.of(Pid::MAX, &directory).err().unwrap().contains("differ"));
        } else {
            // Users without privileges, and kernels before 6.1.
            let why = made.err().unwrap();
            assert!(why.contains("BPF") || why.contains("/sys/kernel/btf"), "{why}");
        }
        // SAFETY: the mapping of above.
        unsafe { rustix::mm::munmap(many, pages * page) }.unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn smaps_of_little_memory_is_left_to_the_kernel() {
        let me = tree::list(std::process::id() as Pid).unwrap();
        assert!(Smaps::new(&me, 4096).unwrap().is_none());
    }
}
