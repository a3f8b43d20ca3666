//! Secrets of TLS connections whose records the kernel encrypts (`net/tls`).

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object, Space};
use pagehaul_inspect::{Machine, tasks};

use super::is_present;
use super::transforms::Transforms;
use crate::collect::Collector;

/// Buckets of the table of connections, and connections in one.
const MAX_BUCKETS: u64 = 1 << 24;
const MAX_CONNECTIONS: usize = 1 << 20;
/// Open files of one process.
const MAX_FILES: u64 = 1 << 20;
/// States of sockets that are no `struct sock`: TCP_TIME_WAIT and TCP_NEW_SYN_RECV.
const MINI: [u64; 2] = [6, 12];
/// `TLS_SW`: the kernel encrypts; other values are those of devices (include/net/tls.h).
const SOFTWARE: u64 = 1;
/// `TLS_BASE`: no keys were set.
const BASE: u64 = 0;
/// `TLS_MAX_IV_SIZE` and `TLS_MAX_SALT_SIZE`.
const MAX_IV: u64 = 20;

pub(super) fn find(
    machine: &Machine<'_>,
    transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    if !is_present(machine, "tls", "tls_sw_context_tx") {
        return Ok(());
    }
    let types = machine.types_with("tls_sw_context_tx", "tls")?;
    let mut sockets = HashSet::new();
    established(machine, &mut sockets, out)?;
    open(machine, &mut sockets, out)?;
    for socket in sockets {
        let connection = machine.space().object(socket, "inet_connection_sock")?;
        let protocol = connection.get("icsk_ulp_ops->name").and_then(|name| name.text());
        if protocol.is_ok_and(|name| name == "tls") {
            let context = types.object(connection.get("icsk_ulp_data")?.pointer()?, "tls_context")?;
            erase_context(&types, &context, transforms, out)?;
        }
    }
    Ok(())
}

/// Adds all connections in the table that packets are matched with.
fn established(
    machine: &Machine<'_>,
    sockets: &mut HashSet<u64>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    let space = machine.space();
    let table = machine.variable("tcp_hashinfo", "inet_hashinfo")?;
    let first = table.get("ehash")?.target()?;
    let in_socket = space.offset_of("sock_common", "skc_nulls_node")?;
    for bucket in 0..=table.number("ehash_mask")?.min(MAX_BUCKETS) {
        let mut node = first.index(bucket)?.get("chain.first")?.pointer()?;
        // The end of such a list is an odd word (hlist_nulls).
        while node & 1 == 0 {
            let socket = node.wrapping_sub(in_socket);
            if sockets.len() > MAX_CONNECTIONS {
                out.gap("connections: there are too many");
                return Ok(());
            }
            if is_tcp(&space.object(socket, "sock_common")?)? && !sockets.insert(socket) {
                out.gap(format!("connections: the list at {node:#x} meets itself"));
                break;
            }
            node = machine.memory().u64(node)?;
        }
    }
    Ok(())
}

fn is_tcp(socket: &Object<'_>) -> Result<bool, Fault> {
    if MINI.contains(&socket.number("skc_state")?) {
        return Ok(false);
    }
    let name = socket.get("skc_prot->name")?.text()?;
    Ok(name == "TCP" || name == "TCPv6")
}

/// Adds the sockets of open files: a connection that has ended is in no table.
fn open(machine: &Machine<'_>, sockets: &mut HashSet<u64>, out: &mut Collector<'_>) -> Result<(), Fault> {
    let space = machine.space();
    let operations = machine.symbol("socket_file_ops")?;
    let found = tasks(machine)?;
    found.broken.into_iter().for_each(|why| out.gap(format!("connections of tasks: {why}")));
    let mut tables = HashSet::new();
    for task in found.all.iter().filter(|task| !task.kernel_thread) {
        let task = space.object(task.address.0, "task_struct")?;
        // A task that has ended has none.
        let Ok(table) = task.get("files->fdt").and_then(|table| table.target()) else { continue };
        if !tables.insert(table.address()) {
            continue;
        }
        let room = table.number("max_fds")?.min(MAX_FILES);
        let bytes = machine.memory().bytes(table.get("fd")?.pointer()?, (8 * room) as usize)?;
        for file in bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)) {
            if file == 0 {
                continue;
            }
            let file = space.object(file, "file")?;
            if file.get("f_op")?.pointer()? != operations {
                continue;
            }
            let socket =
                space.object(file.get("private_data")?.pointer()?, "socket")?.get("sk")?.pointer()?;
            if socket != 0 && is_tcp(&space.object(socket, "sock_common")?)? {
                sockets.insert(socket);
            }
        }
    }
    Ok(())
}

fn erase_context(
    types: &Space<'_>,
    context: &Object<'_>,
    transforms: &mut Transforms<'_>,
    out: &mut Collector<'_>,
) -> Result<(), Fault> {
    for (configured, secret, state, private, record, transform) in [
        ("tx_conf", "crypto_send", "tx", "priv_ctx_tx", "tls_sw_context_tx", "aead_send"),
        ("rx_conf", "crypto_recv", "rx", "priv_ctx_rx", "tls_sw_context_rx", "aead_recv"),
    ] {
        match context.number(configured)? {
            BASE => continue,
            SOFTWARE => {
                let software = types.object(context.get(private)?.pointer()?, record)?;
                transforms.erase("tls_context.aead", software.get(transform)?.pointer()?, out);
            }
            _ => out.gap(format!(
                "the connection with the TLS context at {:#x} is encrypted by a device, which has its keys",
                context.address()
            )),
        }
        // Version and cipher, its first words, stay.
        let secret = context.get(secret)?;
        let size = secret.size().unwrap_or(0).saturating_sub(4);
        out.erase("tls_context.crypto_info", secret.address().wrapping_add(4), size);
        let iv = context.get(state)?.get("iv")?;
        match iv.is_empty() {
            false => out.erase_object("tls_context.iv", &iv),
            // A pointer before 1c1cb3110d7e (6.7).
            true => {
                let salt = context.number("prot_info.salt_size")?;
                let size = context.number("prot_info.iv_size")?.saturating_add(salt);
                out.erase("tls_context.iv", iv.pointer()?, size.min(MAX_IV));
            }
        }
    }
    Ok(())
}
