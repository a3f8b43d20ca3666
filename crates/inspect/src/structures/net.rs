//! Network devices: transmit queues that are stopped or hold packets, and received packets that CPUs have not processed.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::clock::Ticks;
use crate::hex::Hex;
use crate::machine::Machine;

/// Most devices of all network namespaces, and queues of one, that are read.
const MAX_DEVICES: usize = 1024;
const MAX_QUEUES: u64 = 4096;
/// `IFF_UP` (include/uapi/linux/if.h).
const UP: u64 = 1;
/// `TCQ_F_CPUSTATS` (include/net/sch_generic.h): each CPU counts packets.
const PER_CPU: u64 = 0x20;

/// A transmit queue that is stopped or holds packets.
#[derive(Debug, Clone, Serialize)]
pub struct TransmitQueue {
    /// Its number.
    pub index: u64,
    /// Address of its `struct netdev_queue`.
    pub address: Hex,
    /// Whether the driver stopped it: its ring is full, or it resets.
    pub stopped: bool,
    /// Whether the limit of bytes in flight (BQL) stopped it.
    pub limited: bool,
    /// Packets in its queueing discipline.
    pub packets: u64,
    /// Seconds since the driver last took a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<f64>,
}

/// A network device.
#[derive(Debug, Clone, Serialize)]
pub struct NetDevice {
    /// Address of its `struct net_device`.
    pub address: Hex,
    /// Name.
    pub name: String,
    /// Inode number of its network namespace, unless that is the initial one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// Whether it is up.
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Number of its transmit queues.
    pub queues: u64,
    /// Those that are stopped or hold packets.
    pub busy: Vec<TransmitQueue>,
}

/// Received packets of a CPU.
#[derive(Debug, Clone, Serialize)]
pub struct Backlog {
    /// CPU.
    pub cpu: u64,
    /// Packets that wait in its backlog.
    pub packets: u64,
    /// Packets dropped since boot because the backlog was full.
    pub dropped: u64,
    /// How often it ran out of time or budget with packets left.
    pub squeezed: u64,
}

/// What the network was doing.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Net {
    /// Devices of all namespaces.
    pub devices: Vec<NetDevice>,
    /// Backlogs of the CPUs that are online.
    pub backlogs: Vec<Backlog>,
    /// Packets at which a backlog is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog_limit: Option<u64>,
    /// Why some may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// Reads all devices and backlogs.
pub fn net(machine: &Machine<'_>) -> Result<Net, Fault> {
    let mut net = Net::default();
    match backlogs(machine) {
        Ok(backlogs) => net.backlogs = backlogs,
        Err(why) => net.broken = Some(format!("backlogs of CPUs: {why}")),
    }
    // 6.9 moved it into net_hotdata.
    let limit = machine.variable("net_hotdata", "net_hotdata").and_then(|data| data.number("max_backlog"));
    net.backlog_limit = limit.or_else(|_| machine.u32("netdev_max_backlog").map(u64::from)).ok();
    let bits = Bits::new(machine)?;
    let initial = machine.symbol("init_net")?;
    let namespaces = machine.variable("net_namespace_list", "list_head")?.list("net", "list")?;
    net.broken = net.broken.or(namespaces.broken);
    for namespace in namespaces.items {
        let devices = namespace.get("dev_base_head")?.list("net_device", "dev_list")?;
        net.broken = net.broken.take().or(devices.broken);
        machine.space().announce(&devices.items, "_tx->qdisc->");
        let number = Some(namespace.number("ns.inum")?).filter(|_| namespace.address() != initial);
        for device in devices.items {
            if net.devices.len() >= MAX_DEVICES {
                net.broken = Some(format!("there are more than {MAX_DEVICES} devices"));
                return Ok(net);
            }
            match bits.device(machine, &device) {
                Ok(device) => net.devices.push(NetDevice { namespace: number, ..device }),
                Err(why) => {
                    net.broken.get_or_insert_with(|| format!("the device at {:#x}: {why}", device.address()));
                }
            }
        }
    }
    Ok(net)
}

fn backlogs(machine: &Machine<'_>) -> Result<Vec<Backlog>, Fault> {
    let of_cpu = |cpu: u64| {
        let data = machine.space().object(machine.per_cpu("softnet_data", cpu)?, "softnet_data")?;
        Ok(Backlog {
            cpu,
            packets: data.number("input_pkt_queue.qlen")?.saturating_add(data.number("process_queue.qlen")?),
            dropped: dropped(&data)?,
            squeezed: data.number("time_squeeze")?,
        })
    };
    machine.cpu_mask("__cpu_online_mask")?.into_iter().map(of_cpu).collect()
}

fn dropped(data: &Object<'_>) -> Result<u64, Fault> {
    match data.number("dropped") {
        // 6.18 counts in two places, by the NUMA node of the CPU that drops.
        Err(Fault::NoField { .. }) => {
            let counters = data.get("drop_counters")?;
            Ok(counters.number("drops0")?.saturating_add(counters.number("drops1")?))
        }
        found => found,
    }
}

/// Bits of states (`enum netdev_state_t`, `enum netdev_queue_state_t`), as masks, and the time.
struct Bits {
    no_carrier: u64,
    stopped: u64,
    limited: u64,
    ticks: Option<Ticks>,
}

impl Bits {
    fn new(machine: &Machine<'_>) -> Result<Self, Fault> {
        let bit = |name: &str| {
            let bit = machine.space().btf().enumerator(name).filter(|bit| (0..64).contains(bit));
            bit.map(|bit| 1 << bit).ok_or_else(|| machine.space().no_type(name))
        };
        Ok(Self {
            no_carrier: bit("__LINK_STATE_NOCARRIER")?,
            stopped: bit("__QUEUE_STATE_DRV_XOFF")?,
            limited: bit("__QUEUE_STATE_STACK_XOFF")?,
            ticks: Ticks::new(machine).ok(),
        })
    }

    fn device(&self, machine: &Machine<'_>, device: &Object<'_>) -> Result<NetDevice, Fault> {
        let queues = device.number("real_num_tx_queues")?.min(MAX_QUEUES);
        let first = device.get("_tx")?.target()?;
        let mut busy = Vec::new();
        // A queue without its own discipline uses the device's.
        let mut counted = HashSet::new();
        for index in 0..queues {
            let queue = first.index(index)?;
            let state = queue.number("state")?;
            let discipline = queue.get("qdisc")?.target().ok();
            let packets = match discipline.filter(|discipline| counted.insert(discipline.address())) {
                Some(discipline) => packets(machine, &discipline)?,
                None => 0,
            };
            let (stopped, limited) = (state & self.stopped != 0, state & self.limited != 0);
            if stopped || limited || packets > 0 {
                let last = queue.number("trans_start").ok().filter(|jiffies| *jiffies > 0);
                let idle = last.zip(self.ticks.as_ref()).map(|(jiffies, ticks)| ticks.seconds_since(jiffies));
                let address = Hex(queue.address());
                busy.push(TransmitQueue { index, address, stopped, limited, packets, idle });
            }
        }
        Ok(NetDevice {
            address: Hex(device.address()),
            name: device.get("name")?.text()?,
            namespace: None,
            up: device.number("flags")? & UP != 0,
            carrier: device.number("state")? & self.no_carrier == 0,
            queues,
            busy,
        })
    }
}

/// Packets of a queueing discipline, as `qdisc_qlen_sum` (include/net/sch_generic.h).
fn packets(machine: &Machine<'_>, discipline: &Object<'_>) -> Result<u64, Fault> {
    let mut sum = discipline.get("qstats.qlen")?.signed()?;
    if discipline.number("flags")? & PER_CPU == 0 {
        sum = sum.saturating_add(discipline.get("q.qlen")?.signed()?);
    } else {
        let counters = discipline.get("cpu_qstats")?.pointer()?;
        for cpu in machine.cpu_mask("__cpu_possible_mask")? {
            let counters = machine.space().object(machine.on_cpu(counters, cpu)?, "gnet_stats_queue")?;
            // A packet leaves on another CPU than it came on: parts are negative, as 32 bits.
            sum = sum.saturating_add(i64::from(counters.number("qlen")? as u32 as i32));
        }
    }
    Ok(sum.max(0) as u64)
}
