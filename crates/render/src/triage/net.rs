//! Network devices.

use pagehaul_inspect::{NetDevice, Part, TriageReport};
use pagehaul_present::Table;
use pagehaul_present::number::{count, counted};
use pagehaul_present::time::seconds;

use super::lines::{FEW, Lines as _, at_least, more};

pub(super) fn net(report: &TriageReport, out: &mut String, full: bool) {
    let net = &report.net;
    let busy = net.devices.iter().filter(|device| !device.busy.is_empty()).count();
    let received: u64 = net.backlogs.iter().map(|backlog| backlog.packets).sum();
    if !full && busy == 0 && received == 0 {
        return;
    }
    let to_send: u64 = net.devices.iter().flat_map(|device| &device.busy).map(|queue| queue.packets).sum();
    let mut facts = Vec::new();
    if !report.gaps.lacks(Part::Network) {
        let least = at_least(report, Part::Network);
        facts.push(format!("{least}{}", counted(net.devices.len() as u64, "device")));
        // Nor are packets denied that could not be counted.
        if to_send > 0 || report.gaps.is_whole(Part::Network) {
            facts.push(format!("{least}{} to send", counted(to_send, "packet")));
        }
    }
    // Each CPU has one.
    if !net.backlogs.is_empty() {
        facts.push(format!("{} received but not processed", count(received)));
    }
    if facts.is_empty() {
        put!(out, "\nNetwork: not known");
        return;
    }
    put!(out, "\nNetwork: {}", facts.join(", "));
    let shown = if full { usize::MAX } else { FEW };
    for device in net.devices.iter().filter(|device| !device.busy.is_empty()).take(shown) {
        for queue in device.busy.iter().take(shown) {
            let mut facts = vec![counted(queue.packets, "packet")];
            facts.extend(queue.stopped.then(|| "stopped by the driver".to_owned()));
            facts.extend(queue.limited.then(|| "at its limit of bytes in flight".to_owned()));
            facts.extend(queue.idle.map(|idle| format!("last sent {} ago", seconds(idle))));
            put!(out, "  {} queue {}: {}, {}", device.name, queue.index, facts.join(", "), queue.address);
        }
        more(device.busy.len(), shown, "queues", out);
    }
    more(busy, shown, "devices", out);
    if !full {
        return;
    }
    for table in [devices(report), backlogs(report)].iter().filter(|table| !table.rows.is_empty()) {
        out.push('\n');
        out.put_table(table);
    }
}

fn devices(report: &TriageReport) -> Table {
    let mut table = Table::new(["device", "namespace", "state", "queues", "net_device"]).left([0, 2]);
    table.rows(report.net.devices.iter().map(|device| {
        let namespace = device.namespace.map_or_else(String::new, |number| number.to_string());
        let state = link_state(device).to_owned();
        [device.name.clone(), namespace, state, count(device.queues), device.address.to_string()]
    }));
    table
}

fn backlogs(report: &TriageReport) -> Table {
    let mut table = Table::new(["CPU", "packets in the backlog", "dropped", "time squeezed"]);
    for backlog in &report.net.backlogs {
        table.row([backlog.cpu, backlog.packets, backlog.dropped, backlog.squeezed].map(count));
    }
    table
}

/// Transmit queues that are stopped or hold packets, devices, backlogs.
#[cfg(feature = "html")]
pub(super) fn tables(report: &TriageReport) -> [Table; 3] {
    let mut queues =
        Table::new(["device", "queue", "packets", "state", "last sent", "netdev_queue"]).left([0, 3, 5]);
    for device in &report.net.devices {
        queues.rows(device.busy.iter().map(|queue| {
            let states = [
                (queue.stopped, "stopped by the driver"),
                (queue.limited, "at its limit of bytes in flight"),
            ];
            let states: Vec<&str> = states.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
            let idle = queue.idle.map_or_else(String::new, |idle| format!("{} ago", seconds(idle)));
            let [index, packets] = [queue.index, queue.packets].map(count);
            [device.name.clone(), index, packets, states.join(", "), idle, queue.address.to_string()]
        }));
    }
    [queues, devices(report), backlogs(report)]
}

fn link_state(device: &NetDevice) -> &'static str {
    match (device.up, device.carrier) {
        (false, _) => "down",
        (true, false) => "up, no carrier",
        (true, true) => "up",
    }
}
