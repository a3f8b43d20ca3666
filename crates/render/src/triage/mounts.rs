//! Mounts.

use pagehaul_inspect::{Mount, Mounts};
use pagehaul_present::Table;
use pagehaul_present::number::counted;

use super::lines::{Lines as _, known, whys};

pub(super) fn mounts(found: &Mounts, out: &mut String) {
    put!(out, "\nMounts: {}", known(found.all.len(), &found.broken));
    for namespace in &found.namespaces {
        let mounts: Vec<&Mount> =
            found.all.iter().filter(|mount| mount.namespace == namespace.number).collect();
        let at_least = if found.broken.is_empty() { "" } else { "at least " };
        let tasks = counted(namespace.tasks, "task");
        put!(out, "\nNamespace {}: {at_least}{tasks}, the first is {}", namespace.number, namespace.task);
        let mut table =
            Table::new(["mounted on", "device", "type", "state", "mount", "super_block"]).left([0, 1, 2, 3]);
        table.rows(mounts.iter().map(|mount| {
            [
                mount.point.clone(),
                mount.device.clone(),
                mount.kind.clone(),
                state(mount).to_owned(),
                mount.address.to_string(),
                mount.super_block.to_string(),
            ]
        }));
        out.put_table(&table);
    }
    whys(&found.broken, out);
}

fn state(mount: &Mount) -> &'static str {
    match (mount.frozen, mount.read_only) {
        (true, true) => "frozen, read-only",
        (true, false) => "frozen",
        (false, true) => "read-only",
        (false, false) => "",
    }
}
