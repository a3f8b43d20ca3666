//! Whether memory is that of the kernel that a VMCOREINFO describes.

use std::fmt;

use pagehaul_kernel::{Translator, VmcoreInfo};
use pagehaul_machine::arch;
use pagehaul_physmem::{PhysMemory, View};

/// `struct uts_namespace` up to the end of its release: a count, and fields of 65 bytes (`struct new_utsname`).
const UTS_BYTES: usize = 512;
/// Bytes of a kernel image at most (`KERNEL_IMAGE_SIZE` of x86_64; arm64 and riscv64 reserve less).
const MAX_IMAGE: u64 = 1 << 30;
const SYSNAME: &[u8] = b"Linux\0";

/// A kernel whose memory is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Where its `init_uts_ns` lies, which no other kernel has there.
    pub(crate) uts: u64,
    /// Where its top page table lies.
    pub(crate) root: u64,
}

/// What contradicts a VMCOREINFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contradiction {
    /// It contradicts itself or is of a machine without support.
    Info(String),
    /// It has no release or no `SYMBOL(init_uts_ns)`, as one that is cut.
    Incomplete,
    /// The image is not where it says.
    OtherImage {
        /// Where it should be.
        paddr: u64,
        /// Whether the source has memory there.
        exists: bool,
    },
    /// The page tables map the image elsewhere or not at all.
    OtherTables {
        /// Where the top table should be.
        root: u64,
    },
}

impl fmt::Display for Contradiction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Info(why) => out.write_str(why),
            Self::Incomplete => out.write_str("it is cut"),
            Self::OtherImage { paddr, exists: false } => {
                write!(out, "its kernel is at {paddr:#x}, where the image has no memory")
            }
            Self::OtherImage { paddr, exists: true } => {
                write!(out, "the release of its kernel is not in memory at {paddr:#x}")
            }
            Self::OtherTables { root } => {
                write!(out, "no page tables at {root:#x} map its kernel")
            }
        }
    }
}

/// Finds a kernel by the addresses in its VMCOREINFO, and compares it with what is in memory.
pub(crate) fn prove(info: &VmcoreInfo, memory: &dyn PhysMemory) -> Result<Proof, Contradiction> {
    arch::of_kernel(info).map_err(|error| Contradiction::Info(error.to_string()))?;
    let release = info.get("OSRELEASE").filter(|release| !release.is_empty());
    let (Some(release), Some(uts)) = (release, info.symbol("init_uts_ns")) else {
        return Err(Contradiction::Incomplete);
    };
    // Any page can be reached by some address of the direct map; the kernel keeps this one in its image.
    if info.symbol("_stext").is_some_and(|text| text.abs_diff(uts) > MAX_IMAGE) {
        return Err(Contradiction::Incomplete);
    }
    let translator =
        Translator::discover(info, memory).map_err(|error| Contradiction::Info(error.to_string()))?;
    let mut view = memory.view();
    let root = translator.root();
    let place = translator.translate(view.as_mut(), uts).map_err(|_| Contradiction::OtherTables { root })?;
    if !has_release(view.as_mut(), place.paddr, release) {
        let exists = memory.ranges().find(place.paddr).is_some();
        return Err(Contradiction::OtherImage { paddr: place.paddr, exists });
    }
    // The address of the image says where it is; its page tables have to agree.
    let mapped = translator.translate_by_tables(view.as_mut(), uts);
    if mapped.map(|mapped| mapped.paddr).ok() != Some(place.paddr) {
        return Err(Contradiction::OtherTables { root });
    }
    Ok(Proof { uts: place.paddr, root })
}

/// Returns whether `struct uts_namespace` of a kernel with this release is at `paddr`.
fn has_release(view: &mut dyn View, paddr: u64, release: &str) -> bool {
    let mut uts = [0; UTS_BYTES];
    if view.read(paddr, &mut uts).is_err() {
        return false;
    }
    let ended = [release.as_bytes(), b"\0"].concat();
    let mut found = uts.windows(ended.len()).enumerate().filter(|(_, text)| *text == ended);
    // The name of the system comes two fields before.
    found.any(|(at, _)| {
        at.checked_sub(130).and_then(|at| uts.get(at..)).is_some_and(|name| name.starts_with(SYSNAME))
    })
}
