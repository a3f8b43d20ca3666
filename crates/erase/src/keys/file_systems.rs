//! Keys by which file systems encrypt files (fscrypt, `fs/crypto`): the master keys of file systems, and what was derived from them.
//!
//! Each inode with a key points to it, whether its master key is one of its file system or, with policies of version 1, one of a
//! keyring. The key may outlive the master key. So all inodes are looked at, but only if fscrypt was in use since boot.

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::Machine;

use super::transforms::Transforms;
use crate::collect::Collector;

/// Keys in one bucket.
const MAX_KEYS: usize = 1 << 16;
/// Inodes of one file system.
const MAX_INODES: u64 = 1 << 24;
/// Buckets of `fscrypt_direct_keys`.
const DIRECT_BUCKETS: u64 = 64;
/// Keys of each mode, by policy: arrays until a list (`mk_mode_keys`) replaced them between 6.1 and 6.12.
const KEYS_OF_MODES: [&str; 3] = ["mk_direct_keys", "mk_iv_ino_lblk_64_keys", "mk_iv_ino_lblk_32_keys"];
/// File systems whose first use of fscrypt makes the pool of bounce pages (`fscrypt_initialize`).
const WITH_BOUNCE_PAGES: [&str; 3] = ["ext4", "f2fs", "ceph"];

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
    let was_used = machine.u64("fscrypt_bounce_page_pool")? != 0;
    let blocks = machine.variable("super_blocks", "list_head")?.list("super_block", "s_list")?;
    out.broken("file systems", blocks.broken);
    for block in blocks.items {
        let keys = block.get("s_master_keys")?.pointer()?;
        if keys != 0 {
            // d7e7b9af104c (6.1, earlier ones by stable versions) replaced a keyring by a table.
            let buckets = space.object(keys, "fscrypt_keyring")?.get("key_hashtable")?;
            for index in 0..buckets.len() {
                bucket(&buckets.index(index)?, "fscrypt_master_key", "mk_node", out, |key, out| {
                    erase_master_key(key, transforms, out)
                })?;
            }
        }
        let operations = block.get("s_cop")?.pointer()?;
        if operations != 0 && (was_used || keys != 0 || !has_bounce_pages(&block)?) {
            of_inodes(machine, &block, transforms, out)?;
        }
    }
    let first = machine.variable("fscrypt_direct_keys", "hlist_head")?;
    for index in 0..DIRECT_BUCKETS {
        bucket(&first.index(index)?, "fscrypt_direct_key", "dk_node", out, |key, out| {
            out.erase_members("fscrypt_direct_key.dk_raw", key, &["dk_raw"])?;
            erase_prepared(&key.get("dk_key")?, transforms, out)
        })?;
    }
    Ok(())
}

fn has_bounce_pages(block: &Object<'_>) -> Result<bool, Fault> {
    let name = block.get("s_type->name")?.text()?;
    Ok(WITH_BOUNCE_PAGES.contains(&name.as_str()))
}

/// Passes on each entry of a bucket.
fn bucket(
    head: &Object<'_>,
    record: &str,
    link: &str,
    out: &mut Collector<'_>,
    mut erase: impl FnMut(&Object<'_>, &mut Collector<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let space = head.space();
    let mut at = head.get("first")?.pointer()?;
    let mut left = MAX_KEYS;
    while at != 0 {
        left = left.saturating_sub(1);
        if left == 0 {
            out.gap(format!("keys of file systems: the list at {:#x} has too many", head.address()));
            break;
        }
        let node = space.object(at, "hlist_node")?;
        erase(&node.container(record, link)?, out)?;
        at = node.get("next")?.pointer()?;
    }
    Ok(())
}

fn erase_master_key(
    key: &Object<'_>,
    transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    let secret = key.get("mk_secret")?;
    // Renamed where keys that only hardware can unwrap came (6.16).
    out.erase_object("fscrypt_master_key.mk_secret", &secret.any(&["bytes", "raw"])?);
    // All keys of files are derived from this. 19591f7e781f (6.18) replaced a transform by a structure of the library.
    match secret.get("hkdf.hmac_tfm") {
        Ok(transform) => transforms.erase("fscrypt_master_key.hkdf", transform.pointer()?, out),
        Err(_) => out.erase_object("fscrypt_master_key.hkdf", &secret.get("hkdf")?),
    }
    out.erase_members("fscrypt_master_key.mk_ino_hash_key", key, &["mk_ino_hash_key"])?;
    match key.get("mk_mode_keys") {
        Ok(list) => {
            let keys = list.list("fscrypt_mode_key", "link")?;
            out.broken("keys of file systems", keys.broken);
            keys.items.iter().try_for_each(|key| erase_prepared(&key.get("key")?, transforms, out))
        }
        Err(_) => KEYS_OF_MODES.iter().try_for_each(|member| {
            let keys = key.get(member)?;
            (0..keys.len()).try_for_each(|mode| erase_prepared(&keys.index(mode)?, transforms, out))
        }),
    }
}

/// Erases the keys of all inodes of a file system.
fn of_inodes(
    machine: &Machine<'_>,
    block: &Object<'_>,
    transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    let space = machine.space();
    // Renamed between 6.1 and 6.12.
    let record = ["fscrypt_inode_info", "fscrypt_info"].into_iter().find(|name| space.record(name).is_ok());
    let record = record.ok_or_else(|| space.no_type("fscrypt_inode_info"))?;
    // In the file system's own inode, at an offset from the generic one, since 6.18.
    let offset = match space.offset_of("inode", "i_crypt_info") {
        Ok(offset) => offset,
        Err(_) => block.get("s_cop")?.target()?.get("inode_info_offs")?.signed()? as u64,
    };
    // There may be millions: none is kept.
    let link = space.offset_of("inode", "i_sb_list")?;
    let head = block.get("s_inodes")?.address();
    let mut at = machine.memory().u64(head)?;
    // A list that meets itself meets a node that was marked at a power of two.
    let mut marked = head;
    for number in 1..=MAX_INODES {
        if at == head {
            return Ok(());
        }
        let info = machine.memory().u64(at.wrapping_sub(link).wrapping_add(offset))?;
        if info != 0 {
            let info = space.object(info, record)?;
            erase_prepared(&info.get("ci_enc_key")?, transforms, out)?;
            out.erase_members("fscrypt_inode_info.ci_dirhash_key", &info, &["ci_dirhash_key"])?;
        }
        at = machine.memory().u64(at)?;
        if at == marked && at != head {
            break;
        }
        if number.is_power_of_two() {
            marked = at;
        }
    }
    out.gap(format!("inodes of file systems: the list at {head:#x} has too many, or meets itself"));
    Ok(())
}

/// Erases a key in the form in which it encrypts: a transform, or one of a device (CONFIG_FS_ENCRYPTION_INLINE_CRYPT).
fn erase_prepared(
    key: &Object<'_>,
    transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    transforms.erase("fscrypt_prepared_key.tfm", key.get("tfm")?.pointer()?, out);
    let Ok(of_device) = key.get("blk_key") else { return Ok(()) };
    if of_device.pointer()? != 0 {
        // Within a record of devices until 6.2, `raw` before keys that only hardware can unwrap.
        let raw = of_device.target()?.any(&["bytes", "raw", "base.raw"])?;
        out.erase_object("fscrypt_prepared_key.blk_key", &raw);
        out.gap(format!(
            "the key at {:#x} of a device that encrypts files: what the device or what stands in for it has is not found",
            raw.address()
        ));
    }
    Ok(())
}
