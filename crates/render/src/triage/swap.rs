//! Swap devices.

use pagehaul_inspect::Swap;
use pagehaul_machine::{PageCount, PageSize};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, percent};

use super::lines::{Lines as _, known, whys};

pub(super) fn swap(found: &Swap, page_size: PageSize, out: &mut String) {
    put!(out, "\nSwap devices: {}", known(found.devices.len(), &found.broken));
    let size = |pages: PageCount| bytes(pages.bytes(page_size));
    let heading = ["device", "size", "used", "", "priority", "state", "swap_info_struct"];
    let mut table = Table::new(heading).left([0, 5]);
    table.rows(found.devices.iter().map(|device| {
        [
            device.name.clone(),
            size(device.pages),
            size(device.used),
            percent(device.used.get(), device.pages.get()),
            device.priority.to_string(),
            if device.writable { String::new() } else { "is switched off".to_owned() },
            device.address.to_string(),
        ]
    }));
    if !found.devices.is_empty() {
        out.put_table(&table);
    }
    whys(&found.broken, out);
}
