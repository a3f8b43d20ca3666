//! VMCOREINFO, page tables, memory models and page classes of Linux kernels.

mod class;
mod error;
mod kernel;
mod level;
mod scan;
mod translate;
mod vmcoreinfo;

pub use class::PageClass;
pub use error::{KernelError, TranslateError};
pub use kernel::{Hints, Kernel, Undecidable};
pub use level::{DumpLevel, LevelError};
pub use scan::{BlockReport, PageScanner, Trouble};
pub use translate::{Extent, Translator};
pub use vmcoreinfo::VmcoreInfo;
