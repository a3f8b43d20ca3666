//! Builds synthetic machines, vmcores and dumps for tests.
//!
//! Describe a machine, build its memory, write it as an ELF vmcore or a kdump-compressed dump. No code under
//! test is used: every layout is implemented a second time, from the writer's side.
//!
//! ```
//! use pagehaul_synth::{Class, Content, Era, Machine};
//!
//! let image = Machine::new(Era::V6_12)
//!     .five_level()
//!     .kaslr(0x1a00_0000)
//!     .anon(0x4000)
//!     .cache_private(0x4001)
//!     .buddy(0x4008, 3)
//!     .slab(0x4010, 2)
//!     .fill(0x4000, Content::Text)
//!     .build();
//!
//! assert_eq!(image.class(0x400f), Class::Free);
//! assert!(!image.expected(31).contains(&0x4000)); // level 31 excludes user pages
//! assert!(image.expected(31).contains(&0x4013)); // and keeps slab
//!
//! let vmcore: Vec<u8> = image.elf().bytes(); // as /proc/vmcore lays it out
//! let dump: Vec<u8> = image.kdump().level(31).mixed().bytes(); // kdump-compressed
//! # assert!(vmcore.len() > dump.len());
//! ```
//!
//! Memory and files are sparse: building a machine of 100 MiB takes milliseconds, one of 1 TiB (with
//! [`Machine::ram`]) seconds. For larger machines, [`Machine::struct_pages`] and [`Machine::notes`] return
//! the parts that are not computed. An impossible description panics: this is a tool for tests.

mod arm64;
mod block;
mod build;
mod class;
#[cfg(feature = "dumps")]
mod codec;
mod content;
mod elf;
mod era;
mod flat;
#[cfg(feature = "dumps")]
mod foreign;
mod image;
mod image_offset;
mod info;
mod inside;
#[cfg(feature = "dumps")]
mod kdump;
mod log;
mod machine;
mod memmap;
mod memory;
mod notes;
mod paging;
mod riscv64;
mod setup;
mod sparse_file;
mod structs;

pub use arm64::Arm64;
pub use class::{Class, Kind};
#[cfg(feature = "dumps")]
pub use codec::Codec;
pub use content::{Content, Noise, PAGE, PageBytes, mix};
pub use elf::{Elf, Segment};
pub use era::Era;
pub use flat::{Records, flatten};
#[cfg(feature = "dumps")]
pub use foreign::Foreign;
pub use image::Image;
pub use info::CRASH_TIME;
pub use inside::{
    Cgroup, Cgroups, Depot, Guest, Inside, Recorded, Task, Tracked, Unmarked, numbered_functions,
};
#[cfg(feature = "dumps")]
pub use kdump::Kdump;
pub use log::{LOG_PAGES, Message};
pub use machine::{Machine, SAMPLER_PAGES};
pub use notes::note;
pub use riscv64::Riscv64;
pub use setup::{Memmap, Sparse};
