//! Where the kernel image lies in physical memory.

use super::START_KERNEL_MAP;
use crate::image::ImageSource;
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

/// Returns how far the kernel image was moved in physical memory, modulo 2^64: the physical address of any byte of it, less
/// its virtual one, plus `__START_KERNEL_map`. From VMCOREINFO, else from the source, else by search.
pub(super) fn phys_base(info: &VmcoreInfo, source: &mut dyn ImageSource) -> Result<u64, InfoError> {
    // 401721ecd1dc (4.10) exports the value.
    if let Some(base) = info.number("phys_base") {
        return Ok(base as u64);
    }
    if let Some(image) = source.kernel_mapping() {
        return Ok(START_KERNEL_MAP.wrapping_sub(image.offset()));
    }
    search(info, source).ok_or(InfoError::MissingKey {
        key: "NUMBER(phys_base)",
        purpose: "finding the page tables",
        advice: "kernels before 4.10 do not export it, and neither an ELF segment of the kernel image nor a search of memory \
                 located the image; capture at level 0 or 1",
    })
}

/// What the kernel image was moved by where VMCOREINFO gives only the address of the variable that says so: before
/// 401721ecd1dc (4.10).
///
/// The variable is in the image, so its place depends on its value: the right one is the value that is found where it
/// says that it is. A second witness, the release string, rules out memory that happens to be zero.
fn search(info: &VmcoreInfo, source: &mut dyn ImageSource) -> Option<u64> {
    /// The image starts on such a boundary (`CONFIG_PHYSICAL_ALIGN`'s smallest value).
    const ALIGN: u64 = 2 << 20;
    /// KASLR of these kernels went no further than the memory there was; beyond 64 TiB nothing was supported.
    const FARTHEST: u64 = 1 << 46;
    let offset = |symbol| info.symbol(symbol)?.checked_sub(START_KERNEL_MAP);
    let (variable, uts) = (offset("phys_base")?, offset("init_uts_ns")?);
    let release = info.get("OSRELEASE").filter(|release| !release.is_empty())?;
    let memory_end = source.end();
    let mut fits = |base: u64| {
        let (mut value, mut uts_namespace) = ([0; 8], [0; 512]);
        source.read(variable.wrapping_add(base), &mut value)
            && u64::from_le_bytes(value) == base
            && source.read(uts.wrapping_add(base), &mut uts_namespace)
            && uts_namespace.windows(release.len()).any(|text| text == release.as_bytes())
    };
    // 0 first: so it is without KASLR, and with it before 4.8, which moved both addresses by as much.
    let ahead = (0..memory_end.min(FARTHEST)).step_by(ALIGN as usize);
    // Negative where the image was moved up in virtual memory further than in physical; at most by its own offset.
    let back = (1..=variable / ALIGN).map(|step| (step * ALIGN).wrapping_neg());
    ahead.chain(back).find(|&base| fits(base))
}
