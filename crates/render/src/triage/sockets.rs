//! Sockets.

use pagehaul_inspect::{Socket, Sockets};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count};

use super::lines::{Lines as _, known, whys};

pub(super) fn sockets(found: &Sockets, out: &mut String) {
    put!(out, "\nSockets of processes: {}", known(found.all.len(), &found.broken));
    let heading =
        ["family", "protocol", "state", "received", "to send", "local", "remote", "process", "sock"];
    let mut table = Table::new(heading).left([0, 1, 2, 5, 6, 7]);
    table.rows(found.all.iter().map(|socket| {
        [
            socket.family.clone(),
            socket.protocol.clone(),
            socket.state.clone(),
            received(socket),
            if socket.to_send == 0 { "0".to_owned() } else { bytes(socket.to_send) },
            socket.local.clone().unwrap_or_default(),
            socket.remote.clone().unwrap_or_default(),
            match socket.holders {
                1 => socket.process.clone(),
                more => format!("{} and {} more", socket.process, count(more - 1)),
            },
            socket.address.to_string(),
        ]
    }));
    if !found.all.is_empty() {
        out.put_table(&table);
    }
    whys(&found.broken, out);
}

fn received(socket: &Socket) -> String {
    match (socket.backlog, socket.received) {
        (Some(limit), waiting) => format!("{} of {} connections", count(waiting), count(limit)),
        (None, 0) => "0".to_owned(),
        (None, waiting) => bytes(waiting),
    }
}
