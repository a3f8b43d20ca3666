//! Keys of WireGuard (`drivers/net/wireguard`): of devices, of their peers, and of the sessions with these.

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::Machine;

use super::is_present;
use crate::collect::Collector;

/// Sessions with a peer: one is replaced by the next (`struct noise_keypairs`).
const SESSIONS: [&str; 3] = ["current_keypair", "previous_keypair", "next_keypair"];
/// What a handshake knows (`struct noise_handshake`).
const HANDSHAKE: [&str; 5] = [
    "handshake.ephemeral_private",
    "handshake.preshared_key",
    "handshake.precomputed_static_static",
    "handshake.hash",
    "handshake.chaining_key",
];

pub(super) fn find(machine: &Machine<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    if !is_present(machine, "wireguard", "wg_device") {
        return Ok(());
    }
    let types = machine.types_with("wg_device", "wireguard")?;
    // `netdev_priv`: behind the device, aligned to NETDEV_ALIGN.
    let private = machine.space().size_of("net_device")?.next_multiple_of(32);
    let namespaces = machine.variable("net_namespace_list", "list_head")?.list("net", "list")?;
    out.broken("network namespaces", namespaces.broken);
    for namespace in namespaces.items {
        let devices = namespace.get("dev_base_head")?.list("net_device", "dev_list")?;
        out.broken("network devices", devices.broken);
        for device in devices.items {
            let kind = device.get("rtnl_link_ops->kind").and_then(|kind| kind.text());
            if kind.is_ok_and(|kind| kind == "wireguard") {
                let device = types.object(device.address().wrapping_add(private), "wg_device")?;
                erase_device(&device, out)?;
            }
        }
    }
    Ok(())
}

fn erase_device(device: &Object<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    out.erase_members("wg_device.static_identity", device, &["static_identity.static_private"])?;
    out.erase_members("wg_device.cookie_checker", device, &["cookie_checker.secret"])?;
    let peers = device.get("peer_list")?.list("wg_peer", "peer_list")?;
    out.broken("peers of WireGuard", peers.broken);
    for peer in peers.items {
        out.erase_members("wg_peer.handshake", &peer, &HANDSHAKE)?;
        out.erase_members("wg_peer.latest_cookie", &peer, &["latest_cookie.cookie"])?;
        for session in SESSIONS {
            match peer.get("keypairs")?.get(session)?.target() {
                Ok(pair) => out.erase_members("noise_keypair", &pair, &["sending.key", "receiving.key"])?,
                Err(Fault::Null(_)) => {}
                Err(why) => return Err(why),
            }
        }
    }
    Ok(())
}
