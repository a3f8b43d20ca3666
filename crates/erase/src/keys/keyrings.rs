//! Payloads of all keys (`security/keys`).

use std::collections::BTreeMap;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::Machine;

use crate::collect::Collector;

/// `KEY_IS_POSITIVE`: the key has a payload (363b02dab09b, 4.14).
const POSITIVE: u64 = 1;

/// Types whose payloads are no secrets: lists of keys, answers of servers, hashes that are refused.
const PUBLIC: [&str; 3] = ["keyring", "dns_resolver", "blacklist"];

/// Erases the payload of each key, as its type stores it.
pub(super) fn find(machine: &Machine<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    let space = machine.space();
    if space.record("key").is_err() && machine.symbol("key_serial_tree").is_err() {
        // Without CONFIG_KEYS there are none.
        return Ok(());
    }
    let walk = machine.variable("key_serial_tree", "rb_root")?.tree("key", "serial_node")?;
    out.broken("keyrings", walk.broken);
    let mut unknown: BTreeMap<String, u64> = BTreeMap::new();
    for key in walk.items {
        let kind = match key.get("type->name").and_then(|name| name.text()) {
            Ok(kind) => kind,
            Err(why) => {
                out.gap(format!("the key at {:#x}: {why}", key.address()));
                continue;
            }
        };
        match payload(machine, &key, &kind, out) {
            Ok(true) => {}
            Ok(false) => *unknown.entry(kind).or_default() += 1,
            Err(why) => out.gap(format!("the key at {:#x} of type {kind}: {why}", key.address())),
        }
    }
    for (kind, count) in unknown {
        out.gap(format!("keys of type {kind}, of which there are {count}: how they are stored is not known"));
    }
    Ok(())
}

/// Erases the payload of a key. Returns false if its type is unknown.
fn payload(
    machine: &Machine<'_>,
    key: &Object<'_>,
    kind: &str,
    out: &mut Collector<'_>,
) -> Result<bool, Fault> {
    let words = key.get("payload.data")?;
    let mut payload = [0; 4];
    for (index, word) in payload.iter_mut().enumerate() {
        *word = words.index(index as u64)?.pointer()?;
    }
    let [first, ..] = payload;
    if PUBLIC.contains(&kind) || key.number("state")? != POSITIVE || payload == [0; 4] {
        return Ok(true);
    }
    let what = format!("key({kind}).payload");
    // `user`, `logon`, and others that have their payloads stored as `user` does.
    let stored_as =
        |function: &str| Ok::<_, Fault>(machine.symbol(function)? == key.get("type->preparse")?.pointer()?);
    if stored_as("user_preparse")? {
        if first != 0 {
            let data = machine.space().object(first, "user_key_payload")?;
            out.erase(&what, data.get("data")?.address(), data.number("datalen")?);
        }
        return Ok(true);
    }
    match kind {
        "encrypted" => {
            let types = machine.types_with("encrypted_key_payload", "encrypted_keys")?;
            let data = types.object(first, "encrypted_key_payload")?;
            out.erase(&what, data.get("decrypted_data")?.pointer()?, data.number("decrypted_datalen")?);
        }
        "trusted" => {
            let types = machine.types_with("trusted_key_payload", "trusted")?;
            let data = types.object(first, "trusted_key_payload")?;
            out.erase_object(&what, &data.get("key")?);
        }
        // An array of what a key is: the first is the key itself (`enum asymmetric_payload_bits`).
        "asymmetric" => {
            let data = machine.space().object(first, "public_key")?;
            if first != 0 && data.number("key_is_private")? != 0 {
                out.erase(&what, data.get("key")?.pointer()?, data.number("keylen")?);
            }
        }
        ".request_key_auth" => {
            let data = machine.space().object(first, "request_key_auth")?;
            out.erase(&what, data.get("callout_info")?.pointer()?, data.number("callout_len")?);
        }
        // The raw key, behind words that say what it is for (93edd392cad7, 5.6).
        "fscrypt-provisioning" => out.erase(&what, first, key.number("datalen")?),
        _ => return Ok(false),
    }
    Ok(true)
}
