//! Builds vmcores and dumps to order, for tests.
//!
//! Describe a machine, build its memory, write it in any of the field's formats. Nothing here uses code under test:
//! layouts are implemented a second time, from the other side.
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
//! assert!(!image.expected(31).contains(&0x4000)); // user pages go at level 31
//! assert!(image.expected(31).contains(&0x4013)); // slab stays
//!
//! let vmcore: Vec<u8> = image.elf().bytes(); // as /proc/vmcore lays it out
//! let dump: Vec<u8> = image.kdump().level(31).mixed().bytes(); // kdump-compressed
//! # assert!(vmcore.len() > dump.len());
//! ```
//!
//! Memory is kept only where it was written, files are sparse: a machine of 100 MiB costs milliseconds, one of a
//! tebibyte (with [`Machine::ram`]) seconds. Machines too large even for that take [`Machine::struct_pages`] and
//! [`Machine::notes`] and compute the rest. An impossible description panics: this is a tool for tests.

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
mod info;
#[cfg(feature = "dumps")]
mod kdump;
mod log;
mod machine;
mod memmap;
mod memory;
mod notes;
mod paging;
mod setup;
mod sparse_file;
mod structs;

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
#[cfg(feature = "dumps")]
pub use kdump::Kdump;
pub use log::{LOG_PAGES, Message};
pub use machine::{Machine, SAMPLER_PAGES};
pub use notes::note;
pub use setup::{Memmap, Sparse};
