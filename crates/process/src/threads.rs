//! Registers and signals of threads, and the ELF notes of a core.

use pagehaul_elfcore::notes;

use crate::arch::HOST;
use crate::error::ProcessError;
use crate::mapping::Mapping;
use crate::own_ids::{Ids, OwnIds};
use crate::procfs::{self, Stat, Status};
use crate::ptrace;
use crate::stop::Thread;
use crate::units::Pid;
use crate::units::page_size;

/// Registers and signals of one stopped thread.
#[derive(Debug)]
pub(crate) struct ThreadState {
    tid: Pid,
    ids: Ids,
    stat: Stat,
    blocked: u64,
    general: Vec<u8>,
    signal_info: Option<[u8; ptrace::SIGINFO]>,
    /// Other register sets: type, name of the note's owner, bytes.
    others: Vec<(u32, &'static str, Vec<u8>)>,
}

impl ThreadState {
    /// Reads the state of a stopped thread. None if it was killed meanwhile.
    pub(crate) fn read(pid: Pid, own: &OwnIds, thread: Thread) -> Result<Option<Self>, ProcessError> {
        let tid = thread.tid;
        let read = || -> std::io::Result<Option<Self>> {
            let Some(general) = ptrace::registers(tid, notes::NT_PRSTATUS)? else { return Ok(None) };
            let mut others = Vec::new();
            for &(kind, owner) in HOST.register_sets {
                if let Some(bytes) = ptrace::registers(tid, kind)? {
                    others.push((kind, owner, bytes));
                }
            }
            let stat = Stat::read(pid, tid).unwrap_or_default();
            Ok(Some(Self {
                tid,
                ids: own.of_thread(tid, &stat),
                stat,
                blocked: ptrace::signal_mask(tid)?,
                general,
                signal_info: ptrace::signal_info(tid),
                others,
            }))
        };
        match read() {
            Ok(Some(state)) if state.general.len() != HOST.general_registers => {
                Err(ProcessError::Not64Bit(pid))
            }
            Ok(state) => Ok(state),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(source) => Err(ProcessError::Trace { action: "read the registers of", tid, source }),
        }
    }

    /// The thread.
    pub(crate) fn tid(&self) -> Pid {
        self.tid
    }

    /// `struct elf_prstatus`.
    fn prstatus(&self, ticks: u64) -> Vec<u8> {
        let mut out = Fields::default();
        // No signal: it was stopped by us, not by one. What the kernel says of that stop is in NT_SIGINFO.
        out.put(&[0; 12]).put(&0u16.to_le_bytes()).pad(16);
        out.put(&self.stat.pending.to_le_bytes()).put(&self.blocked.to_le_bytes());
        for id in [self.ids.thread, self.ids.parent, self.ids.group, self.ids.session] {
            out.put(&id.to_le_bytes());
        }
        for time in self.stat.times {
            out.put(&(time / ticks).to_le_bytes());
            out.put(&(time % ticks * 1_000_000 / ticks).to_le_bytes());
        }
        let has_fp = self.others.iter().any(|(kind, ..)| *kind == notes::NT_PRFPREG);
        out.put(&self.general).put(&u32::from(has_fp).to_le_bytes());
        let size = out.0.len().next_multiple_of(8);
        out.pad(size);
        out.0
    }
}

/// All notes of a core, threads in the order given; the kernel's order within a thread. `state` is the letter of the
/// process's state before it was stopped.
pub(crate) fn encode(
    pid: Pid,
    threads: &[ThreadState],
    state: u8,
    mappings: &[Mapping],
) -> Result<Vec<u8>, ProcessError> {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let mut out = Vec::new();
    for (index, thread) in threads.iter().enumerate() {
        notes::push(&mut out, "CORE", notes::NT_PRSTATUS, &thread.prstatus(ticks));
        if index == 0 {
            notes::push(&mut out, "CORE", notes::NT_PRPSINFO, &prpsinfo(pid, thread, state)?);
        }
        if let Some(info) = &thread.signal_info {
            notes::push(&mut out, "CORE", notes::NT_SIGINFO, info);
        }
        if index == 0 {
            notes::push(
                &mut out,
                "CORE",
                notes::NT_AUXV,
                &procfs::read(pid, &format!("task/{}/auxv", thread.tid))?,
            );
            notes::push(&mut out, "CORE", notes::NT_FILE, &files(mappings));
        }
        for (kind, owner, bytes) in &thread.others {
            notes::push(&mut out, owner, *kind, bytes);
        }
    }
    Ok(out)
}

/// `struct elf_prpsinfo`: 136 bytes.
fn prpsinfo(pid: Pid, thread: &ThreadState, letter: u8) -> Result<Vec<u8>, ProcessError> {
    let status = Status::read(pid)?;
    let stat = &thread.stat;
    let mut arguments = procfs::read(pid, &format!("task/{}/cmdline", thread.tid)).unwrap_or_default();
    if arguments.last() == Some(&0) {
        arguments.pop();
    }
    for byte in &mut arguments {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    let state = b"RSDTZW".iter().position(|&known| known == letter).unwrap_or(0) as u8;
    let mut out = Fields::default();
    out.put(&[state, letter, u8::from(letter == b'Z'), stat.nice as u8]).pad(8);
    out.put(&stat.flags.to_le_bytes()).put(&status.uid.to_le_bytes()).put(&status.gid.to_le_bytes());
    for id in [thread.ids.process, thread.ids.parent, thread.ids.group, thread.ids.session] {
        out.put(&id.to_le_bytes());
    }
    out.put(stat.name.get(..15).unwrap_or(&stat.name)).pad(56);
    out.put(arguments.get(..79).unwrap_or(&arguments)).pad(136);
    Ok(out.0)
}

/// NT_FILE: which file is mapped where. Offsets are in pages, as the kernel has them.
fn files(mappings: &[Mapping]) -> Vec<u8> {
    let mapped: Vec<&Mapping> = mappings.iter().filter(|mapping| mapping.has_file()).collect();
    let mut out = Fields::default();
    let page = page_size();
    out.put(&(mapped.len() as u64).to_le_bytes()).put(&page.to_le_bytes());
    for mapping in &mapped {
        for word in [mapping.range.start, mapping.range.end, mapping.offset / page] {
            out.put(&word.to_le_bytes());
        }
    }
    for mapping in &mapped {
        out.put(&mapping.name).put(&[0]);
    }
    out.0
}

/// A struct being put together.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Zeros up to offset `end`.
    fn pad(&mut self, end: usize) -> &mut Self {
        self.0.resize(end.max(self.0.len()), 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread() -> ThreadState {
        ThreadState {
            tid: 77,
            ids: Ids { thread: 77, ..Ids::default() },
            stat: Stat {
                name: b"a name longer than allowed".to_vec(),
                times: [250, 0, 0, 0],
                ..Stat::default()
            },
            blocked: 5,
            general: vec![9; HOST.general_registers],
            signal_info: Some([3; ptrace::SIGINFO]),
            others: vec![
                (notes::NT_PRFPREG, "CORE", vec![8; 512]),
                (notes::NT_X86_XSTATE, "LINUX", vec![7; 2696]),
            ],
        }
    }

    #[test]
    fn prstatus_is_laid_out_as_the_kernel_does() {
        let bytes = thread().prstatus(100);
        let registers = HOST.general_registers;
        // 336 on x86_64, 392 on arm64.
        assert_eq!(bytes.len(), registers + 120);
        assert_eq!(&bytes[24..32], &5u64.to_le_bytes(), "pr_sighold");
        assert_eq!(&bytes[32..36], &77u32.to_le_bytes(), "pr_pid");
        assert_eq!(&bytes[48..56], &2u64.to_le_bytes(), "pr_utime seconds");
        assert_eq!(&bytes[56..64], &500_000u64.to_le_bytes(), "pr_utime microseconds");
        assert_eq!(&bytes[112..112 + registers], &vec![9; registers]);
        assert_eq!(&bytes[112 + registers..116 + registers], &1u32.to_le_bytes(), "pr_fpvalid");
    }

    #[test]
    fn notes_come_in_the_kernels_order() {
        let me = std::process::id() as Pid;
        let mut first = thread();
        first.tid = me;
        let mappings = crate::mapping::read(me, me).unwrap();
        let bytes = encode(me, &[first, thread()], b'S', &mappings).unwrap();
        let kinds: Vec<u32> = notes::iter(&bytes).map(|note| note.kind).collect();
        let (own, of_process) =
            ([notes::NT_SIGINFO, notes::NT_PRFPREG, notes::NT_X86_XSTATE], [notes::NT_AUXV, notes::NT_FILE]);
        let expected = [
            vec![
                notes::NT_PRSTATUS,
                notes::NT_PRPSINFO,
                own[0],
                of_process[0],
                of_process[1],
                own[1],
                own[2],
            ],
            vec![notes::NT_PRSTATUS, own[0], own[1], own[2]],
        ];
        assert_eq!(kinds, expected.concat());
        let info = notes::iter(&bytes).find(|note| note.kind == notes::NT_PRPSINFO).unwrap();
        assert_eq!(info.desc.len(), 136);
        assert_eq!(&info.desc[40..56], b"a name longer t\0");
    }
}
