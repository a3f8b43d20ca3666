//! Keys by which file systems encrypt files (fscrypt, `fs/crypto`).

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::Machine;

use super::transforms::Transforms;
use crate::collect::Collector;

/// Keys of one file system in one bucket.
const MAX_KEYS: usize = 1 << 16;

pub(super) fn find(
    machine: &Machine<'_>,
    transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    let space = machine.space();
    if space.record("fscrypt_master_key").is_err() {
        // Without CONFIG_FS_ENCRYPTION.
        return Ok(());
    }
    let blocks = machine.variable("super_blocks", "list_head")?.list("super_block", "s_list")?;
    out.broken("file systems", blocks.broken);
    for block in blocks.items {
        let keys = block.get("s_master_keys")?.pointer()?;
        if keys == 0 {
            continue;
        }
        // d7e7b9af104c (6.1, earlier ones by stable versions) replaced a keyring by a table.
        let buckets = space.object(keys, "fscrypt_keyring")?.get("key_hashtable")?;
        for index in 0..buckets.len() {
            let mut at = buckets.index(index)?.get("first")?.pointer()?;
            let mut left = MAX_KEYS;
            while at != 0 {
                left = left.saturating_sub(1);
                if left == 0 {
                    out.gap("keys of file systems: a table has too many");
                    break;
                }
                let key = space.object(at, "hlist_node")?.container("fscrypt_master_key", "mk_node")?;
                erase_key(&key, transforms, out)?;
                at = key.get("mk_node.next")?.pointer()?;
            }
        }
    }
    Ok(())
}

fn erase_key(
    key: &Object<'_>,
    _transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    let secret = key.get("mk_secret")?;
    out.erase_object("fscrypt_master_key.mk_secret", &secret.any(&["bytes", "raw"])?);
    out.gap(format!(
        "the keys that were derived from the fscrypt key at {:#x}: pagehaul does not find them",
        key.address()
    ));
    Ok(())
}
