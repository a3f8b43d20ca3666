//! Keys of encrypted disks (`drivers/md/dm-crypt.c`), in the tables of device-mapper devices.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::{Machine, disks};

use super::is_present;
use super::transforms::Transforms;
use crate::collect::Collector;

/// Targets of one table, and transforms of one target.
const MAX_TARGETS: u64 = 1 << 16;
const MAX_TRANSFORMS: u64 = 1 << 10;
/// `struct crypt_iv_operations` of the IV generators whose keys are not that of the disk.
const KEYED_GENERATORS: [&str; 3] = ["crypt_iv_lmk_ops", "crypt_iv_tcw_ops", "crypt_iv_elephant_ops"];
/// `struct crypto_authenc_key_param` as an attribute (`RTA_SPACE`), which precedes an authenticated key.
const PARAMETER: u64 = 8;

pub(super) fn find(
    machine: &Machine<'_>,
    transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    if !is_present(machine, "dm_crypt", "crypt_config") {
        return Ok(());
    }
    let types = machine.types_with("dm_table", "dm_mod")?;
    let crypt = machine.types_with("crypt_config", "dm_crypt")?;
    let mut seen = HashSet::new();
    for disk in disks(machine)? {
        if !disk.get("disk_name")?.text()?.starts_with("dm-") {
            continue;
        }
        let device = types.object(disk.get("private_data")?.pointer()?, "mapped_device")?;
        // The table in use, and one that was loaded and is not in use yet.
        let mut tables = vec![device.get("map")?.pointer()?];
        let cell = device.get("interface_ptr")?.pointer()?;
        if cell != 0 {
            tables.push(types.object(cell, "hash_cell")?.get("new_map")?.pointer()?);
        }
        for table in tables {
            if table == 0 || !seen.insert(table) {
                continue;
            }
            let table = types.object(table, "dm_table")?;
            let targets = table.get("targets")?.pointer()?;
            let first = types.object(targets, "dm_target")?;
            for index in 0..table.number("num_targets")?.min(MAX_TARGETS) {
                let target = first.index(index)?;
                if target.get("type->name")?.text()? == "crypt" {
                    let config = crypt.object(target.get("private")?.pointer()?, "crypt_config")?;
                    erase_config(machine, &config, transforms, out)?;
                }
            }
        }
    }
    Ok(())
}

fn erase_config(
    machine: &Machine<'_>,
    config: &Object<'_>,
    transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    let size = config.number("key_size")?;
    out.erase("crypt_config.key", config.get("key")?.address(), size);
    let count = config.number("tfms_count")?.clamp(1, MAX_TRANSFORMS);
    let authenticated = config.get("authenc_key")?.pointer()?;
    if authenticated != 0 {
        let part = size.saturating_sub(config.number("key_extra_size")?) / count;
        out.erase("crypt_config.authenc_key", authenticated, part.saturating_add(PARAMETER));
    }
    let list = config.get("cipher_tfm.tfms")?.pointer()?;
    for index in 0..count {
        let transform = machine.memory().u64(list.wrapping_add(8 * index))?;
        transforms.erase("crypt_config.cipher_tfm", transform, out);
    }
    let generator = config.get("iv_gen_ops")?.pointer()?;
    let name = machine.symbols().name(generator).map(|name| name.symbol).unwrap_or_default();
    if KEYED_GENERATORS.contains(&&*name) {
        out.gap(format!("the keys of {name}, by which a disk makes its IVs, are not found"));
    }
    Ok(())
}
