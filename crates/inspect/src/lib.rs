//! What a kernel was doing when its memory was saved: tasks, CPUs, stacks, locks, memory, slab caches, vmalloc areas,
//! block requests, network devices, timers, modules. One file each; all read [`Machine`], the kernel's memory with its
//! symbols, types and unwind tables.
//!
//! Nothing needs debug symbols. If a kernel lacks a field, the report leaves the fact out and names the reason.

pub mod ahead;
mod block;
mod cause;
mod cpus;
mod crash_notes;
mod death;
mod detail;
mod difference;
mod gaps;
mod hex;
mod locks;
mod machine;
mod memory;
mod modules;
mod net;
mod next;
mod paths;
mod per_cpu_chunks;
mod per_cpu_lists;
mod registers;
mod report;
mod slab;
mod stacks;
mod system;
mod tasks;
mod timers;
pub mod unwind;
mod verdict;
mod vmalloc;
mod vmas;
mod workers;

pub use block::{Request, Suspended, requests, suspended};
pub use cause::cause;
pub use cpus::{Cpu, cpus};
pub use crash_notes::saved_registers;
pub use death::{Death, LogLine, death};
pub use detail::{Detail, OpenFile, detail};
pub use difference::{Change, Difference, Sides, difference};
pub use gaps::{Gap, Gaps, Part};
pub use hex::Hex;
pub use locks::{Held, Locks, Wait, locks};
pub use machine::{Machine, OpenError};
pub use memory::{
    Counter, Counters, Memory, Process, Use, Zone, hugetlb_pages, is_kib, memory, nodes, zones_of,
};
pub use modules::Module;
pub use net::{Backlog, Net, NetDevice, TransmitQueue};
pub use next::Next;
pub use paths::path;
pub use per_cpu_chunks::{PerCpuChunks, per_cpu_chunks};
pub use per_cpu_lists::{PerCpuBlocks, PerCpuFree, per_cpu_blocks, per_cpu_free};
pub use report::{LastLine, Report, TaskStack};
pub use slab::{Cache, caches};
pub use stacks::{FrameName, StackGroup, StackTrace, chain, group, task_stack};
pub use system::{System, Taint, system};
pub use tasks::{Task, Tasks, tasks};
pub use timers::{Timer, Timers};
pub use verdict::{Evidence, Facts, Finding, findings};
pub use vmalloc::{Vmalloc, VmallocCaller, caller_name, vmalloc, vmap_areas};
pub use vmas::Vma;
pub use workers::Worker;
