//! Pools of compressed memory (zsmalloc), by the device or the cache that has them.

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::Machine;

/// The name of the module that has the types of pools, if they are not the kernel's.
const ZSMALLOC: &str = "zsmalloc";

/// Returns who has each pool, its pages as the pool counts them, and why some may be missing.
pub(crate) fn pools(machine: &Machine<'_>) -> (Vec<(String, u64)>, Option<String>) {
    let (mut found, mut broken) = (Vec::new(), None);
    for part in [of_zram, of_zswap] {
        match part(machine, &mut found) {
            // The kernel has no zram or no zswap, or not as modules with types (until 5.11).
            Ok(()) | Err(Fault::NoSymbol(_) | Fault::NoType(_)) => {}
            Err(why) => drop(broken.get_or_insert_with(|| why.to_string())),
        }
    }
    (found, broken)
}

fn of_zram(machine: &Machine<'_>, found: &mut Vec<(String, u64)>) -> Result<(), Fault> {
    let devices = machine.symbol_in("zram", "zram_index_idr")?;
    let types = machine.types_with("zram", "zram")?;
    let walk = types.object(devices, "idr")?.get("idr_rt")?.xarray()?;
    for (_, device) in walk.items {
        let device = types.object(device, "zram")?;
        // Null: without a size.
        if let pool @ 1.. = device.get("mem_pool")?.pointer()? {
            found.push((device.get("disk->disk_name")?.text()?, pages(machine, pool)?));
        }
    }
    walk.broken.map_or(Ok(()), |why| Err(Fault::NotRead(why)))
}

fn of_zswap(machine: &Machine<'_>, found: &mut Vec<(String, u64)>) -> Result<(), Fault> {
    let all = machine.variable("zswap_pools", "list_head")?.list("zswap_pool", "list")?;
    let mut sum = 0_u64;
    for pool in all.items {
        if pool.has("zs_pool") {
            // Seen in 7.2, not in 6.12.
            sum = sum.saturating_add(pages(machine, pool.get("zs_pool")?.pointer()?)?);
            continue;
        }
        // b8cf32dc6e8c (6.5) to 6.10: several.
        let zpools = pool.any(&["zpool", "zpools"])?;
        for number in 0..zpools.len().max(1) {
            let zpool = if zpools.is_empty() { zpools } else { zpools.index(number)? };
            sum = sum.saturating_add(of_zpool(machine, &zpool.target()?)?);
        }
    }
    found.extend((sum > 0).then(|| ("zswap".to_owned(), sum)));
    all.broken.map_or(Ok(()), |why| Err(Fault::NotRead(why)))
}

/// Pages of a pool of one of several allocators.
fn of_zpool(machine: &Machine<'_>, zpool: &Object<'_>) -> Result<u64, Fault> {
    match zpool.get("driver->type")?.text()?.as_str() {
        ZSMALLOC => pages(machine, zpool.get("pool")?.pointer()?),
        _ => Ok(0),
    }
}

fn pages(machine: &Machine<'_>, pool: u64) -> Result<u64, Fault> {
    machine.types_with("zs_pool", ZSMALLOC)?.object(pool, "zs_pool")?.number("pages_allocated")
}
