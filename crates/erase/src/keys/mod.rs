//! Keys, and what encrypts or decrypts with them.
//!
//! What is not loaded has no keys. What is loaded and has keys that this does not find is reported as such.

mod dm_crypt;
mod file_systems;
mod integrity;
mod keyrings;
mod random;
mod tls;
mod transforms;
mod wireguard;

use pagehaul_btf::Fault;
use pagehaul_inspect::Machine;

use crate::collect::Collector;
use transforms::Transforms;

pub(crate) fn find(machine: &Machine<'_>, out: &mut Collector<'_>) {
    if !machine.modules_whole() {
        out.gap("keys of modules: the list of loaded modules cannot be read to its end");
    }
    let outcome = keyrings::find(machine, out);
    out.outcome("keyrings", outcome);
    let outcome = integrity::find(machine, out);
    out.outcome("keys that IMA has yet to measure", outcome);
    let outcome = random::find(machine, out);
    out.outcome("random number generator", outcome);
    let outcome = of_transforms(machine, out);
    out.outcome("crypto transforms", outcome);
    let outcome = wireguard::find(machine, out);
    out.outcome("WireGuard", outcome);
}

fn of_transforms(machine: &Machine<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    let mut transforms = Transforms::new(machine, out)?;
    let outcome = dm_crypt::find(machine, &mut transforms, out);
    out.outcome("dm-crypt", outcome);
    let outcome = tls::find(machine, &mut transforms, out);
    out.outcome("TLS in the kernel", outcome);
    let outcome = file_systems::find(machine, &mut transforms, out);
    out.outcome("encryption of files (fscrypt)", outcome);
    Ok(())
}

/// Whether the code that has these keys is there: as a module, or in the kernel, whose types then have `record`.
fn is_present(machine: &Machine<'_>, module: &str, record: &str) -> bool {
    machine.modules().iter().any(|loaded| loaded.name == module) || machine.space().record(record).is_ok()
}
