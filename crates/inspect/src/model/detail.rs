//! One task in detail: flags, cgroup, open files, registers.

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::cpus::Cpu;
use crate::hex::Hex;
use crate::machine::Machine;
use crate::structures::paths::file_name;
use crate::structures::registers;
use crate::structures::stack::stack_bounds;
use crate::structures::tasks::Task;
use crate::structures::vmas::{Vma, vmas};

/// Open files whose names are read.
const MAX_NAMES: usize = 32;
/// Descriptors of a process that are counted.
const MAX_FILES: u64 = 1 << 20;
/// Directories of a cgroup's path.
const DEEPEST: usize = 64;

/// Flags of tasks (`PF_*`, include/linux/sched.h) whose values no kernel since 4.14 has changed.
const FLAGS: [(u64, &str); 9] = [
    (0x4, "exiting"),
    (0x40, "forked, no exec since"),
    (0x100, "superuser"),
    (0x200, "dumps core"),
    (0x400, "killed by a signal"),
    (0x800, "allocates from reserves"),
    (0x2_0000, "kswapd"),
    (0x20_0000, "kernel thread"),
    (0x400_0000, "bound to CPUs"),
];

/// An open file.
#[derive(Debug, Clone, Serialize)]
pub struct OpenFile {
    /// Descriptor.
    pub descriptor: u64,
    /// Path within its file system, or the file system's name for sockets and pipes.
    pub name: String,
}

/// Facts of one task other than its stack. Facts that cannot be read are left out.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Detail {
    /// Flags in words.
    pub flags: Vec<&'static str>,
    /// Path of its cgroup in the unified hierarchy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Number of its memory mappings, as the kernel counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings: Option<u64>,
    /// Its memory mappings.
    pub vmas: Vec<Vma>,
    /// Why some mappings may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmas_broken: Option<String>,
    /// What of these facts could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Number of open files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// The first open files.
    pub files: Vec<OpenFile>,
    /// Registers at the entry from user mode.
    pub registers: Vec<(&'static str, Hex)>,
    /// Registers in the kernel: of a running task those that its CPU saved at the crash, of another those that the scheduler
    /// saved, which are the ones that a call preserves.
    pub kernel_registers: Vec<(&'static str, Hex)>,
}

/// Reads the facts of a task. `cpus` are those of the report.
pub fn detail(machine: &Machine<'_>, cpus: &[Cpu], task: &Task) -> Detail {
    drop(machine.take_lost());
    let flags = FLAGS.iter().filter(|(flag, _)| task.flags.0 & flag != 0).map(|(_, name)| *name).collect();
    let Ok(object) = machine.space().object(task.address.0, "task_struct") else {
        return Detail { flags, ..Detail::default() };
    };
    let (open_files, files) =
        files(machine, &object).map_or((None, Vec::new()), |(count, files)| (Some(count), files));
    // Kernel threads have no memory, and some kernels lack the members.
    let mapped = object.get("mm").and_then(|mm| vmas(machine, &mm.target()?));
    let (vmas, vmas_broken) = mapped.unwrap_or_default();
    let mut detail = Detail {
        flags,
        missing: None,
        cgroup: cgroup(&object).ok(),
        mappings: object.number("mm->map_count").ok(),
        vmas,
        vmas_broken,
        open_files,
        files,
        registers: entry_registers(machine, task).unwrap_or_default(),
        kernel_registers: kernel_registers(machine, cpus, task).unwrap_or_default(),
    };
    detail.missing =
        machine.take_lost().describe().map(|why| format!("files, mappings or registers of the task: {why}"));
    detail
}

/// The path of the cgroup: names of kernfs up to its root.
fn cgroup(task: &Object<'_>) -> Result<String, Fault> {
    let mut at = task.get("cgroups->dfl_cgrp->kn")?.target()?;
    let mut parts = Vec::new();
    for _ in 0..DEEPEST {
        // 633488947ef6 (6.15) renamed parent.
        let Ok(parent) = at.any(&["__parent", "parent"])?.target() else { break };
        parts.push(at.get("name")?.text()?);
        at = parent;
    }
    parts.reverse();
    Ok(format!("/{}", parts.join("/")))
}

fn files(machine: &Machine<'_>, task: &Object<'_>) -> Result<(u64, Vec<OpenFile>), Fault> {
    let table = task.get("files->fdt")?.target()?;
    let room = table.number("max_fds")?.min(MAX_FILES);
    let first = table.get("fd")?.pointer()?;
    let (bytes, _) = machine.memory().readable_bytes(first, (8 * room) as usize);
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let open = words.enumerate().filter(|(_, file)| *file != 0);
    let mut count = 0;
    let mut files = Vec::new();
    for (descriptor, file) in open {
        count += 1;
        if files.len() < MAX_NAMES {
            let name = file_name(machine, file).unwrap_or_else(|_| format!("{file:#x}"));
            files.push(OpenFile { descriptor: descriptor as u64, name });
        }
    }
    Ok((count, files))
}

/// The registers of the CPU that runs the task, or those that the scheduler saved.
fn kernel_registers(
    machine: &Machine<'_>,
    cpus: &[Cpu],
    task: &Task,
) -> Result<Vec<(&'static str, Hex)>, Fault> {
    if let Some(cpu) = cpus.iter().find(|cpu| cpu.task_address() == Some(task.address)) {
        // Those of user mode are the ones at the entry, and stale ones of the stack would not be this task's.
        let saved = cpu.registers.iter().filter(|_| !cpu.user_mode);
        return Ok(saved.copied().collect());
    }
    registers::preserved(machine, task.address.0)
}

/// The `struct pt_regs` at the start of the stack, where entries from user mode put it.
fn entry_registers(machine: &Machine<'_>, task: &Task) -> Result<Vec<(&'static str, Hex)>, Fault> {
    if task.mm.0 == 0 {
        return Ok(Vec::new());
    }
    registers::at_entry(machine, stack_bounds(machine, task.address.0)?.end)
}
