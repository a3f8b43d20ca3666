//! Keys that IMA, which measures what a system runs, has yet to measure.

use pagehaul_btf::Fault;
use pagehaul_inspect::Machine;

use crate::collect::Collector;

/// Erases the payloads of new `asymmetric` keys, private ones too, of which IMA keeps copies until it has a policy
/// (`CONFIG_IMA_QUEUE_EARLY_BOOT_KEYS`, 9fb38e76b5f1, 5.6), for five minutes at most (8f5d2d06f217, 5.6).
pub(super) fn find(machine: &Machine<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    if machine.symbol("ima_keys").is_err() {
        return Ok(());
    }
    let queue = machine.variable("ima_keys", "list_head")?.list("ima_key_entry", "list")?;
    out.broken("keys that IMA has yet to measure", queue.broken);
    for entry in queue.items {
        out.erase("ima_key_entry.payload", entry.get("payload")?.pointer()?, entry.number("payload_len")?);
    }
    Ok(())
}
