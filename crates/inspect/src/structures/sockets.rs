//! Sockets that processes have open, with what waits in their queues.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pagehaul_btf::{Fault, Object};
use pagehaul_present::number::counted;
use serde::Serialize;

use super::files::open_files;
use super::ram::ram_bytes;
use super::tasks::Tasks;
use crate::hex::Hex;
use crate::machine::Machine;

/// Sockets that are read.
const MAX_SOCKETS: usize = 1 << 20;
/// Bytes of the name of a UNIX socket (`sizeof(sun_path)`).
const MAX_NAME: u64 = 108;
/// Address families (include/linux/socket.h).
const FAMILIES: [(u64, &str); 6] =
    [(1, "UNIX"), (2, "IPv4"), (10, "IPv6"), (16, "netlink"), (17, "packet"), (40, "vsock")];
/// Types (include/linux/net.h).
const TYPES: [(u64, &str); 5] = [(1, "stream"), (2, "datagram"), (3, "raw"), (4, "rdm"), (5, "seqpacket")];
/// Protocols of IP (include/uapi/linux/in.h).
const PROTOCOLS: [(u64, &str); 6] =
    [(1, "ICMP"), (6, "TCP"), (17, "UDP"), (58, "ICMPv6"), (132, "SCTP"), (262, "MPTCP")];
const TCP: u64 = 6;
/// States of sockets (`TCP_ESTABLISHED` and its neighbours, include/net/tcp_states.h), which UNIX sockets use, too.
const STATES: [&str; 13] = [
    "",
    "established",
    "SYN sent",
    "SYN received",
    "FIN wait 1",
    "FIN wait 2",
    "time wait",
    "closed",
    "close wait",
    "last ACK",
    "listening",
    "closing",
    "new SYN received",
];
const LISTENING: u64 = 10;

/// A socket.
#[derive(Debug, Clone, Serialize)]
pub struct Socket {
    /// Address of its `struct sock`.
    pub address: Hex,
    /// Address family.
    pub family: String,
    /// Protocol of IP, else its type, such as `stream`.
    pub protocol: String,
    /// State, where it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Its own address and port, or path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Those of the other side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Bytes of memory that received packets take which the process has not read; connections not accepted, if it listens.
    pub received: u64,
    /// Bytes that wait to be sent, with those that the other side has not confirmed.
    pub to_send: u64,
    /// Connections that can wait to be accepted, if it listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u64>,
    /// The first process that has it open.
    pub process: String,
    /// Tables of descriptors that have it.
    pub holders: u64,
}

/// Sockets of all processes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Sockets {
    /// Those with the most bytes in their queues first.
    pub all: Vec<Socket>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the sockets that processes have open.
pub fn sockets(machine: &Machine<'_>, tasks: &Tasks) -> Sockets {
    // A task that is not in the list may have sockets, too.
    let mut found = Sockets { all: Vec::new(), broken: tasks.broken.clone() };
    if tasks.all.is_empty() {
        found.broken.push("sockets: no task could be read".to_owned());
    }
    let operations = match machine.symbol("socket_file_ops") {
        Ok(operations) => operations,
        Err(why) => {
            found.broken.push(format!("sockets: {why}"));
            return found;
        }
    };
    let ram = ram_bytes(machine);
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut unread = Unread::default();
    let broken = open_files(machine, tasks, |task, file| {
        if file.get("f_op")?.pointer()? != operations {
            return Ok(());
        }
        let socket = machine.space().object(file.get("private_data")?.pointer()?, "socket")?;
        let address = socket.get("sk")?.pointer()?;
        if let Some(known) = places.get(&address).and_then(|place| found.all.get_mut(*place)) {
            known.holders += 1;
            return Ok(());
        }
        // A socket that was not connected to a protocol, or is being closed.
        if address == 0 || found.all.len() >= MAX_SOCKETS {
            return Ok(());
        }
        match describe(machine, &socket.get("sk")?.target()?, task.label()) {
            Ok(socket) => match too_much(&socket, ram) {
                None => {
                    places.insert(address, found.all.len());
                    found.all.push(socket);
                }
                Some(why) => unread.add(address, &why),
            },
            Err(why) => unread.add(address, &why),
        }
        Ok(())
    });
    found.broken.extend(broken.into_iter().chain(unread.describe()));
    if found.all.len() >= MAX_SOCKETS {
        found.broken.push(format!("sockets: more than {MAX_SOCKETS} are not read"));
    }
    let waits = |socket: &Socket| match socket.backlog {
        Some(_) => 0,
        None => socket.received.saturating_add(socket.to_send),
    };
    found.all.sort_by_key(|socket| std::cmp::Reverse(waits(socket)));
    found
}

/// Sockets that are not shown.
#[derive(Default)]
struct Unread {
    addresses: HashSet<u64>,
    first: Option<String>,
}

impl Unread {
    fn add(&mut self, address: u64, why: &dyn Display) {
        self.addresses.insert(address);
        self.first.get_or_insert_with(|| format!("the socket at {address:#x}: {why}"));
    }

    fn describe(self) -> Option<String> {
        let first = self.first?;
        Some(match self.addresses.len() {
            1 => first,
            all => format!("{} cannot be read, the first: {first}", counted(all as u64, "socket")),
        })
    }
}

/// Why numbers of a socket cannot be true: what waits in its queues is in memory.
fn too_much(socket: &Socket, ram: u64) -> Option<String> {
    let (received, what) = match socket.backlog {
        Some(_) => (socket.received, "connections"),
        None => (socket.received, "bytes received"),
    };
    let too_much = [(received, what), (socket.to_send, "bytes to send")];
    let (number, what) = too_much.into_iter().find(|(number, _)| *number > ram)?;
    Some(format!("{number} {what} are more than the memory of the machine: it is damaged"))
}

fn describe(machine: &Machine<'_>, sock: &Object<'_>, process: String) -> Result<Socket, Fault> {
    let common = sock.get("__sk_common")?;
    let family = common.number("skc_family")?;
    let (kind, protocol) = (sock.number("sk_type")?, sock.number("sk_protocol")?);
    let state = common.number("skc_state")?;
    let is_ip = matches!(family, 2 | 10);
    let named = |names: &[(u64, &str)], number: u64, what: &str| {
        let known = names.iter().find(|(known, _)| *known == number);
        known.map_or_else(|| format!("{what} {number}"), |(_, name)| (*name).to_owned())
    };
    let (local, remote) = match family {
        1 => (unix_name(sock)?, peer_name(sock)),
        2 | 10 => ends(&common, family)?,
        _ => (None, None),
    };
    let listens = state == LISTENING && (family == 1 || protocol == TCP && is_ip);
    let (mut received, mut to_send) =
        (sock.number("sk_backlog.rmem_alloc")?, sock.get("sk_wmem_queued")?.signed()?.max(0) as u64);
    if listens {
        received = sock.number("sk_ack_backlog")?;
        // Of a UNIX socket the connections are packets of its queue (net/unix/af_unix.c).
        if family == 1 {
            received = sock.number("sk_receive_queue.qlen")?;
        }
    } else if is_ip && protocol == TCP {
        let tcp = machine.space().object(sock.address(), "tcp_sock")?;
        let distance = |from: &str, to: &str| {
            Ok::<_, Fault>(u64::from((tcp.number(from)? as u32).wrapping_sub(tcp.number(to)? as u32)))
        };
        to_send = distance("write_seq", "snd_una")?;
    } else if let Ok(allocated) = sock.number("sk_wmem_alloc") {
        // One is the socket itself (sock_init_data); packets that were sent but not freed are the rest.
        to_send = allocated.saturating_sub(1);
    }
    Ok(Socket {
        address: Hex(sock.address()),
        family: named(&FAMILIES, family, "family"),
        protocol: if is_ip { named(&PROTOCOLS, protocol, "protocol") } else { named(&TYPES, kind, "type") },
        state: match is_ip && protocol != TCP {
            // Of UDP only whether it is connected, which the remote address says.
            true => String::new(),
            false => {
                STATES.get(state as usize).map_or_else(|| format!("state {state}"), |name| (*name).to_owned())
            }
        },
        local,
        remote,
        received,
        to_send,
        backlog: listens.then(|| sock.number("sk_max_ack_backlog")).transpose()?,
        process,
        holders: 1,
    })
}

/// Both ends of a socket of IP.
fn ends(common: &Object<'_>, family: u64) -> Result<(Option<String>, Option<String>), Fault> {
    let address = |four: &str, six: &str| -> Result<IpAddr, Fault> {
        if family == 2 {
            // In the order of the network, so the bytes are in order.
            return Ok(Ipv4Addr::from((common.number(four)? as u32).to_le_bytes()).into());
        }
        let mut bytes = [0; 16];
        let at = common.get(six)?.address();
        common.space().memory().read(at, &mut bytes).map_err(Fault::from)?;
        Ok(Ipv6Addr::from(bytes).into())
    };
    let shown = |address: IpAddr, port: u16| match address {
        IpAddr::V6(address) => format!("[{address}]:{port}"),
        IpAddr::V4(address) => format!("{address}:{port}"),
    };
    let local = address("skc_rcv_saddr", "skc_v6_rcv_saddr")?;
    let remote = address("skc_daddr", "skc_v6_daddr")?;
    // The own port is a number of this machine; the other's is in the order of the network.
    let (port, other) = (common.number("skc_num")? as u16, (common.number("skc_dport")? as u16).swap_bytes());
    let connected = other != 0 || !remote.is_unspecified();
    Ok((Some(shown(local, port)), connected.then(|| shown(remote, other))))
}

/// The name of a UNIX socket: a path, or an abstract name, which begins with `@`.
fn unix_name(sock: &Object<'_>) -> Result<Option<String>, Fault> {
    let pointer = sock.space().object(sock.address(), "unix_sock")?.get("addr")?;
    if pointer.pointer()? == 0 {
        return Ok(None);
    }
    let address = pointer.target()?;
    // Behind the family, 2 bytes.
    let len = address.number("len")?.saturating_sub(2).min(MAX_NAME);
    let at = address.get("name")?.address().wrapping_add(2);
    let (bytes, _) = sock.space().memory().readable_bytes(at, len as usize);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match bytes.split_first() {
        Some((0, name)) => Some(format!("@{}", text(name))),
        _ => Some(text(bytes.split(|byte| *byte == 0).next().unwrap_or_default())),
    })
}

fn peer_name(sock: &Object<'_>) -> Option<String> {
    let peer = sock.space().object(sock.address(), "unix_sock").ok()?.get("peer").ok()?.target().ok()?;
    unix_name(&peer).ok()?.or_else(|| Some(format!("{:#x}", peer.address())))
}
