//! Swap devices and files.

use pagehaul_btf::Fault;
use pagehaul_machine::PageCount;
use serde::Serialize;

use super::paths::path;
use crate::hex::Hex;
use crate::machine::Machine;

/// `MAX_SWAPFILES` is below 32.
const MAX_DEVICES: u64 = 32;
/// `SWP_USED`, `SWP_WRITEOK` (include/linux/swap.h).
const USED: u64 = 1;
const WRITABLE: u64 = 2;
/// Bits of `inuse_pages` that say that the device is full, not how full (`SWAP_USAGE_OFFLIST_BIT`, 6.14): bit 30 at first, then 62.
const IS_FULL: u64 = 1 << 30 | 1 << 62;

/// A swap device or file.
#[derive(Debug, Clone, Serialize)]
pub struct SwapDevice {
    /// Address of its `struct swap_info_struct`.
    pub address: Hex,
    /// Path in its file system, or the disk.
    pub name: String,
    /// Pages that it holds.
    pub pages: PageCount,
    /// Those that are in use.
    pub used: PageCount,
    /// Priority: larger first.
    pub priority: i64,
    /// Whether it takes pages: not while it is switched off.
    pub writable: bool,
}

/// All of them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Swap {
    /// In the order in which they were switched on.
    pub devices: Vec<SwapDevice>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the swap devices.
pub fn swap(machine: &Machine<'_>) -> Swap {
    let mut found = Swap::default();
    if let Err(why) = read(machine, &mut found) {
        found.broken.push(format!("swap: {why}"));
    }
    found
}

fn read(machine: &Machine<'_>, found: &mut Swap) -> Result<(), Fault> {
    let count = u64::from(machine.u32("nr_swapfiles")?).min(MAX_DEVICES);
    let pointers = machine.symbol("swap_info")?;
    for number in 0..count {
        match machine.memory().u64(pointers.wrapping_add(8 * number)).map_err(Fault::from) {
            Ok(0) => {}
            Ok(address) => match device(machine, address) {
                Ok(device) => found.devices.extend(device),
                Err(why) => found.broken.push(format!("swap device {number}: {why}")),
            },
            Err(why) => found.broken.push(format!("swap device {number}: {why}")),
        }
    }
    Ok(())
}

fn device(machine: &Machine<'_>, address: u64) -> Result<Option<SwapDevice>, Fault> {
    let info = machine.space().object(address, "swap_info_struct")?;
    let flags = info.number("flags")?;
    // Structures of devices that were switched off are kept.
    if flags & USED == 0 {
        return Ok(None);
    }
    let pages = info.number("pages")?;
    let used = info.number("inuse_pages")?;
    let dentry = info.get("swap_file")?.target()?.any(&["f_path.dentry", "__f_path.dentry"])?.target()?;
    Ok(Some(SwapDevice {
        address: Hex(address),
        name: path(&dentry)?,
        pages: PageCount::new(pages),
        used: PageCount::new(if used > pages { used & !IS_FULL } else { used }),
        priority: info.get("prio")?.signed()?,
        writable: flags & WRITABLE != 0,
    }))
}
