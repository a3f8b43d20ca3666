//! The random number generator: what it knows predicts keys that are made later, and tells those that were made.
//!
//! The structures are those of 186873c549df (5.18; among stable kernels, 5.10.119, 5.15.44 and later).

use pagehaul_btf::Fault;
use pagehaul_inspect::Machine;

use crate::collect::Collector;

/// `CHACHA_KEY_SIZE`: `key` is the first member of `base_crng` and of `struct crng`.
const KEY: u64 = 32;
/// Random numbers that are handed out later, per CPU (`DEFINE_BATCHED_ENTROPY`).
const BATCHES: [(&str, &str); 4] = [
    ("batched_entropy_u8", "batch_u8"),
    ("batched_entropy_u16", "batch_u16"),
    ("batched_entropy_u32", "batch_u32"),
    ("batched_entropy_u64", "batch_u64"),
];

pub(super) fn find(machine: &Machine<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    let space = machine.space();
    out.erase("base_crng.key", machine.symbol("base_crng")?, KEY);
    // `hash` is the first member of `input_pool`. A later 6.x renamed its type.
    let pool = machine.symbol("input_pool")?;
    let hash = space.object(pool, "blake2s_state").or_else(|_| space.object(pool, "blake2s_ctx"))?;
    out.erase_members("input_pool.hash", &hash, &["h", "buf"])?;
    for cpu in machine.cpu_mask("__cpu_possible_mask")? {
        out.erase("crngs.key", machine.per_cpu("crngs", cpu)?, KEY);
        let pool = space.object(machine.per_cpu("irq_randomness", cpu)?, "fast_pool")?;
        out.erase_members("irq_randomness.pool", &pool, &["pool"])?;
        for (symbol, record) in BATCHES {
            // 6.1 has no batches of 1 and 2 bytes in early stable versions.
            let Ok(address) = machine.per_cpu(symbol, cpu) else { continue };
            out.erase_members("batched_entropy", &space.object(address, record)?, &["entropy"])?;
        }
    }
    Ok(())
}
