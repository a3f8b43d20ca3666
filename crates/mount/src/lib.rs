//! A dump as a plain file: an ELF64 vmcore laid out as `/proc/vmcore` is, served through FUSE to whatever reads, maps or
//! copies it.

mod device;
mod fs;
mod layout;
mod options;
mod session;

pub use layout::{Absent, CoreFile};
pub use options::Options;
pub use session::{MountError, Mounted, check_directory, detach, mount};
