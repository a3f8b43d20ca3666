//! IPC of System V.

use pagehaul_inspect::Ipc;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count};

use super::lines::{Lines as _, known, whys};

pub(super) fn ipc(found: &Ipc, out: &mut String) {
    put!(out, "\nIPC of System V: {}", known(found.objects.len(), &found.broken));
    let heading = [
        "kind",
        "namespace",
        "ID",
        "key",
        "owner",
        "mode",
        "number",
        "size",
        "attached",
        "pages",
        "kern_ipc_perm",
    ];
    let mut table = Table::new(heading).left([0]);
    let or_nothing = |value: Option<u64>| value.map_or_else(String::new, count);
    table.rows(found.objects.iter().map(|object| {
        [
            object.kind.to_owned(),
            object.namespace.map_or_else(String::new, |number| number.to_string()),
            object.id.to_string(),
            format!("{:#x}", object.key as u32),
            object.uid.to_string(),
            format!("{:03o}", object.mode),
            or_nothing(object.count),
            object.bytes.map_or_else(String::new, bytes),
            or_nothing(object.attached),
            or_nothing(object.pages.map(|pages| pages.get())),
            object.address.to_string(),
        ]
    }));
    if !found.objects.is_empty() {
        out.put_table(&table);
    }
    whys(&found.broken, out);
}
