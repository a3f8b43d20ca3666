//! What a kernel was doing when its memory was saved: tasks, CPUs, stacks, locks, memory, slab caches, vmalloc areas,
//! block requests, network devices, modules, and more on request. In the order in which data flows:
//!
//! 1. `machine`: the kernel's memory with its symbols, types and unwind tables ([`Machine`]); kernel stacks ([`unwind`]).
//! 2. `structures`: readers of the kernel's structures, one file each.
//! 3. `model`: what several structures say together: CPUs with their stacks, tasks that wait for each other.
//! 4. `findings`: how the machine died, and the verdict.
//! 5. `report`: everything together, what of it is missing, and what changed between two reports.
//!
//! Nothing needs debug symbols. If a kernel lacks a field, the report leaves the fact out and names the reason.

#![deny(missing_docs)]

mod findings;
mod hex;
mod machine;
mod model;
mod report;
mod structures;
pub mod unwind;

pub use findings::cause::cause;
pub use findings::death::{Death, LogLine, death};
pub use findings::next::Next;
pub use findings::verdict::{Evidence, Facts, Finding, findings};
pub use hex::Hex;
pub use machine::module::Module;
pub use machine::open::OpenError;
pub use machine::taints::Taint;
pub use machine::typed::{TypesError, with_types};
pub use machine::{Machine, ahead};
pub use model::cpus::{Cpu, cpus};
pub use model::detail::{Detail, OpenFile, detail};
pub use model::locks::locks;
pub use model::per_cpu_lists::{PerCpuBlocks, PerCpuFree, per_cpu_blocks, per_cpu_free};
pub use model::stacks::{FrameName, StackGroup, StackTrace, chain, group, task_stack};
pub use model::waits::{Held, Locks, Wait};
pub use model::workers::Worker;
pub use report::difference::{Change, Difference, Sides, difference};
pub use report::gaps::{Gap, Gaps, Part};
pub use report::on_request::{OnRequest, Requested};
pub use report::triage::{LastLine, TaskStack, TriageReport};
pub use structures::alloc_tags::{AllocTag, AllocTags, CodeTag, alloc_tags, code_tag};
pub use structures::block::{Request, Suspended, disks, requests, suspended};
pub use structures::clock::Ticks;
pub use structures::counts::{Counts, NameCount, ParentCount};
pub use structures::crash_notes::saved_registers;
pub use structures::files::open_files;
pub use structures::interrupts::{CpuInterrupts, Interrupt, Interrupts};
pub use structures::ipc::{Ipc, IpcObject};
pub use structures::memory::{
    Counter, Counters, Memory, Process, Use, Zone, hugetlb_pages, is_kib, memory, nodes, zones_of,
};
pub use structures::mounts::{Mount, MountNamespace, Mounts};
pub use structures::net::{Backlog, Net, NetDevice, TransmitQueue};
pub use structures::page_ext::{OwnerStack, PageExt, PageOwner, static_key_enabled, task_name};
pub use structures::paths::path;
pub use structures::per_cpu_chunks::{PerCpuChunks, per_cpu_chunks};
pub use structures::pressure::{Pressure, Pressures};
pub use structures::rcu::{Rcu, RcuCallbacks};
pub use structures::signals::{PendingSignals, Signals};
pub use structures::slab::{Cache, cache_node, caches, page_head};
pub use structures::slab_objects::{MAX_SLAB_OBJECTS, SlabLayout};
pub use structures::sockets::{Socket, Sockets};
pub use structures::stack_depot::StackDepot;
pub use structures::swap::{Swap, SwapDevice};
pub use structures::system::{System, system};
pub use structures::tasks::{Task, Tasks, tasks};
pub use structures::timers::{Timer, Timers};
pub use structures::vmalloc::{Vmalloc, VmallocCaller, caller_name, vmalloc, vmap_areas};
pub use structures::vmas::Vma;
pub use structures::workqueues::{PoolWorkqueue, WorkerPool, Workqueues};
