//! Packets in the queues of sockets: the pages that they are made of. Small packets are objects of slab caches, and not among them.

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::PageCount;
use pagehaul_present::number::{count, counted};

use super::Walks;
use crate::claims::Claimant;

/// Packets that are read, and how many a page has room for: a `struct sk_buff` alone takes 232 bytes.
const MAX_PACKETS: u64 = 4 << 20;
const PACKETS_PER_PAGE: u64 = 4;
/// Families of IP and their protocol TCP (include/linux/socket.h, include/uapi/linux/in.h).
const IP: [u64; 2] = [2, 10];
const TCP: u64 = 6;
const UDP: u64 = 17;

/// How reading packets went.
#[derive(Default)]
pub(crate) struct Packets {
    read: u64,
    /// Queues that were not read to their end.
    broken: u64,
    /// The reason of the first.
    first: Option<String>,
}

impl Packets {
    fn lost(&mut self, why: String) {
        self.broken += 1;
        self.first.get_or_insert(why);
    }

    pub(super) fn describe(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!("{} could not be read to their end, the first: {first}", counted(self.broken, "queue")))
    }
}

impl<'a> Walks<'a> {
    /// Claims the pages of packets in the queues of the `struct socket` at `socket`, which `process` has open.
    pub(super) fn socket(&mut self, socket: u64, process: &str) -> Result<(), Fault> {
        let machine = self.machine;
        // Null: not connected to a protocol, or being closed.
        let sock = machine.space().object(socket, "socket")?.get("sk")?.target()?;
        let claimant = self.claims.claimant(Claimant::Sockets { process: process.to_owned() });
        for queue in ["sk_receive_queue", "sk_error_queue", "sk_write_queue"] {
            self.queue(&sock.get(queue)?, claimant)?;
        }
        if !IP.contains(&sock.number("__sk_common.skc_family")?) {
            return Ok(());
        }
        match sock.number("sk_protocol")? {
            TCP if sock.number("sk_type")? == 1 => {
                let tcp = sock.cast("tcp_sock")?;
                // 75c119afe14f (4.15): what was sent and is not confirmed.
                for tree in [sock.get("tcp_rtx_queue")?, tcp.get("out_of_order_queue")?] {
                    self.packet_tree(&tree, claimant)?;
                }
            }
            // 2276f58ac589 (4.13).
            UDP => self.queue(&sock.cast("udp_sock")?.get("reader_queue")?, claimant)?,
            _ => {}
        }
        Ok(())
    }

    /// Claims the packets of a `struct sk_buff_head`, as many as it counts.
    fn queue(&mut self, queue: &Object<'a>, claimant: u32) -> Result<(), Fault> {
        let (head, space) = (queue.address(), queue.space());
        let mut at = queue.get("next")?.pointer()?;
        for _ in 0..queue.number("qlen")? {
            // Shorter than it counts: a CPU was changing it.
            if at == head || at == 0 {
                break;
            }
            let packet = space.object(at, "sk_buff")?;
            match self.packet(&packet, claimant, 0).and_then(|()| packet.get("next")?.pointer()) {
                Ok(next) => at = next,
                Err(why) => {
                    self.packets.lost(format!("the queue at {head:#x}: {why}"));
                    break;
                }
            }
        }
        Ok(())
    }

    fn packet_tree(&mut self, tree: &Object<'a>, claimant: u32) -> Result<(), Fault> {
        let found = tree.tree("sk_buff", "rbnode")?;
        if let Some(why) = found.broken {
            self.packets.lost(why);
        }
        for packet in found.items {
            if let Err(why) = self.packet(&packet, claimant, 0) {
                self.packets.lost(format!("the queue at {:#x}: {why}", tree.address()));
                break;
            }
        }
        Ok(())
    }

    /// Claims the pages of a packet: fragments, those of the packets that it is made of, and its head if that is a fragment.
    fn packet(&mut self, packet: &Object<'a>, claimant: u32, depth: u32) -> Result<(), Fault> {
        self.packets.read += 1;
        let most = MAX_PACKETS.min(self.pages_of_machine().saturating_mul(PACKETS_PER_PAGE));
        if self.packets.read > most {
            return Err(Fault::NotRead(format!("more than {} packets are not read", count(most))));
        }
        let head = packet.get("head")?.pointer()?;
        // A part of a block that a CPU or a device has for packets. The head of others is of a slab cache, or of large kmalloc.
        if packet.number("head_frag")? != 0 {
            let pfn = self.pfn_at(head)?;
            match self.memmap.struct_page(pfn) {
                Some(page) => self.claim_block_of(page.get(), claimant),
                None => self.claims.add(pfn..pfn + PageCount::new(1), claimant),
            }
        }
        if packet.number("data_len")? == 0 {
            return Ok(());
        }
        // NET_SKBUFF_DATA_USES_OFFSET, which machines of 64 bits have.
        let shared = head.wrapping_add(packet.number("end")?);
        let shared = packet.space().object(shared, "skb_shared_info")?;
        let fragments = shared.get("frags")?;
        for number in 0..shared.number("nr_frags")?.min(fragments.len()) {
            // `netmem` since 21d2e6737c97 (6.9), of which the lowest bit tells memory of devices.
            let page = fragments.index(number)?.any(&["netmem", "bv_page"])?.pointer()?;
            if page & 1 == 0 {
                self.claim_block_of(page, claimant);
            }
        }
        // Packets that were joined (GRO, fragments of IP). Theirs have none.
        let mut next = shared.get("frag_list")?.pointer()?;
        while next != 0 && depth == 0 {
            let packet = packet.space().object(next, "sk_buff")?;
            self.packet(&packet, claimant, depth + 1)?;
            next = packet.get("next")?.pointer()?;
        }
        Ok(())
    }
}
