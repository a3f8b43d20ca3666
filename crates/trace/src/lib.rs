//! Reads kernel trace events from live kernels and trace files.
//!
//! [`Event`] is one view over the binary ring buffer of a live kernel ([`live`]) and over trace files
//! ([`TraceFile`]). Fields are found by name in the kernel's `format` files ([`EventFormat`]), never by
//! position: names, order, widths and signs change between releases. Events of all CPUs are merged by time
//! without an allocation per event. Lost and unreadable events are counted ([`Losses`]).
//!
//! ```no_run
//! use pagehaul_trace::live::{InstanceOptions, LiveReader, Tracefs};
//! use pagehaul_trace::EventSource;
//!
//! # fn main() -> Result<(), pagehaul_trace::TraceError> {
//! let instance = Tracefs::find()?.create_instance(&InstanceOptions::default())?;
//! instance.enable("sched", "sched_switch")?;
//! let mut reader = LiveReader::new(instance)?;
//! reader.start()?;
//! while reader.poll(std::time::Duration::from_millis(100))? {
//!     while let Some(event) = reader.next_event()? {
//!         let prev = event.format().slot("prev_pid").and_then(|slot| event.i64(slot));
//!         println!("{} {} {:?} {:?}", event.ts(), event.format().name, prev, event.comm());
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod binary;
mod comms;
mod dat;
mod error;
mod event;
mod file;
mod format;
mod info;
mod input;
mod kernel_files;
pub mod live;
mod lost;
mod merge;
pub mod pht;
pub mod ring;
mod source;
mod symbols;
mod text;
mod zstd;

pub use error::TraceError;
pub use event::Event;
pub use file::TraceFile;
pub use format::{EventFormat, Field, FieldKind, Formats, PerFormat, Slot, ValueNames};
pub use info::{KernelCounters, MachineInfo, Origin, Run, TraceInfo};
pub use input::Input;
pub use lost::{CpuLosses, Losses};
pub use source::EventSource;
pub use symbols::Symbols;

/// Byte order and word size of the traced machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    pub big_endian: bool,
    /// Bytes of a kernel `long`: 4 or 8.
    pub long_size: u8,
}

impl Abi {
    /// The machine that this program runs on.
    pub const fn host() -> Self {
        Self { big_endian: cfg!(target_endian = "big"), long_size: size_of::<usize>() as u8 }
    }

    /// Decodes all of `bytes` (1, 2, 4 or 8) as an unsigned integer. Returns `None` for other lengths.
    #[inline]
    pub fn unsigned(self, bytes: &[u8]) -> Option<u64> {
        let value = match *bytes {
            [a] => return Some(u64::from(a)),
            [a, b] => {
                let value = u16::from_le_bytes([a, b]);
                return Some(u64::from(if self.big_endian { value.swap_bytes() } else { value }));
            }
            [a, b, c, d] => {
                let value = u32::from_le_bytes([a, b, c, d]);
                return Some(u64::from(if self.big_endian { value.swap_bytes() } else { value }));
            }
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        };
        Some(if self.big_endian { value.swap_bytes() } else { value })
    }
}
