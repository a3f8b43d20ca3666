//! Block requests in flight.

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::clock::scheduler_clock;
use crate::hex::Hex;
use crate::machine::Machine;

/// Most disks, hardware queues and tags that are read.
const MAX_DISKS: usize = 4096;
const MAX_QUEUES: u64 = 4096;
const MAX_TAGS: u64 = 65_536;
/// `MQ_RQ_IN_FLIGHT` (enum mq_rq_state).
const IN_FLIGHT: u64 = 1;
/// Operations (`enum req_op`).
const OPERATIONS: [(u64, &str); 6] =
    [(0, "read"), (1, "write"), (2, "flush"), (3, "discard"), (5, "secure erase"), (9, "write zeroes")];

/// A request that a driver has.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    /// Address of its `struct request`.
    pub address: Hex,
    /// Disk.
    pub disk: String,
    /// Operation.
    pub operation: String,
    /// Bytes.
    pub bytes: u64,
    /// Seconds since it was allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age: Option<f64>,
}

/// A device-mapper device that is suspended.
#[derive(Debug, Clone, Serialize)]
pub struct Suspended {
    /// Disk.
    pub disk: String,
    /// Address of its `struct mapped_device`.
    pub address: Hex,
    /// Whether bios wait until it is resumed.
    pub has_waiting: bool,
}

/// Returns the device-mapper devices that are suspended.
pub fn suspended(machine: &Machine<'_>) -> Result<Vec<Suspended>, Fault> {
    // DMF_BLOCK_IO_FOR_SUSPEND and DMF_SUSPENDED (drivers/md/dm-core.h).
    const SUSPENDED: u64 = 3;
    let mut found = Vec::new();
    let mut types = None;
    for disk in disks(machine)?.into_iter().take(MAX_DISKS) {
        let name = disk.get("disk_name").and_then(|name| name.text()).unwrap_or_default();
        if !name.starts_with("dm-") {
            continue;
        }
        if types.is_none() {
            types = Some(machine.types_with("mapped_device", "dm_mod")?);
        }
        let Some(types) = &types else { continue };
        let device = types.object(disk.get("private_data")?.pointer()?, "mapped_device")?;
        if device.number("flags")? & SUSPENDED != 0 {
            let has_waiting =
                device.get("deferred.head").and_then(|head| head.pointer()).is_ok_and(|head| head != 0);
            found.push(Suspended { disk: name, address: Hex(device.address()), has_waiting });
        }
    }
    Ok(found)
}

/// Returns all requests in flight, the oldest first.
pub fn requests(machine: &Machine<'_>) -> Result<Vec<Request>, Fault> {
    let clock = scheduler_clock(machine).ok();
    let mut found = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let disks = disks(machine)?;
    machine.space().announce(&disks, "queue->tag_set->tags->->rqs->");
    for disk in disks.into_iter().take(MAX_DISKS) {
        let Ok(queue) = disk.get("queue").and_then(|queue| queue.target()) else { continue };
        if !seen.insert(queue.address()) {
            continue;
        }
        // Drivers that take bios have no tags.
        let Ok(set) = queue.get("tag_set").and_then(|set| set.target()) else { continue };
        let name = disk.get("disk_name").and_then(|name| name.text()).unwrap_or_default();
        let tags = set.get("tags")?.target()?;
        for index in 0..set.number("nr_hw_queues")?.min(MAX_QUEUES) {
            let Ok(tags) = tags.index(index).and_then(|tags| tags.target()) else { continue };
            let count = tags.number("nr_tags")?.min(MAX_TAGS);
            let Ok(requests) = tags.get("rqs").and_then(|requests| requests.target()) else { continue };
            for tag in 0..count {
                let Ok(request) = requests.index(tag).and_then(|request| request.target()) else { continue };
                let of_queue =
                    request.get("q").and_then(|of| of.pointer()).is_ok_and(|of| of == queue.address());
                if of_queue && request.number("state").is_ok_and(|state| state == IN_FLIGHT) {
                    found.extend(describe(&request, &name, clock));
                }
            }
        }
    }
    found.sort_by(|a, b| b.age.unwrap_or(0.0).total_cmp(&a.age.unwrap_or(0.0)));
    Ok(found)
}

fn describe(request: &Object<'_>, disk: &str, clock: Option<u64>) -> Result<Request, Fault> {
    let operation = request.number("cmd_flags")? & 0xff;
    let start = request.number("start_time_ns").ok().filter(|start| *start > 0);
    Ok(Request {
        address: Hex(request.address()),
        disk: disk.to_owned(),
        operation: OPERATIONS
            .iter()
            .find(|(number, _)| *number == operation)
            .map_or_else(|| format!("operation {operation}"), |(_, name)| (*name).to_owned()),
        bytes: request.number("__data_len")?,
        age: clock.zip(start).map(|(clock, start)| clock.saturating_sub(start) as f64 / 1e9),
    })
}

/// Returns all disks (`struct gendisk`): the devices of `block_class`.
pub fn disks<'a>(machine: &'a Machine<'_>) -> Result<Vec<Object<'a>>, Fault> {
    let class = machine.variable("block_class", "class")?;
    // class.p until 6.3; then the class is searched.
    let private = match class.get("p") {
        Ok(private) => private.target()?,
        Err(_) => private_of(machine, class.address())?,
    };
    let devices = private.get("klist_devices.k_list")?.list("device_private", "knode_class.n_node")?;
    machine.space().announce(&devices.items, "device->");
    let mut found = Vec::new();
    for device in devices.items {
        let Ok(device) = device.get("device").and_then(|device| device.target()) else { continue };
        // 0d02129e76ed (5.11): partitions are block devices too, the disk is partition 0.
        let disk = if machine.space().has("block_device", "bd_device") {
            device.container("block_device", "bd_device").and_then(|device| device.get("bd_disk")?.target())
        } else if device.get("type").and_then(|kind| kind.pointer()).ok() == machine.symbol("disk_type").ok()
        {
            device.container("gendisk", "part0.__dev")
        } else {
            continue;
        };
        if let Ok(disk) = disk
            && !found.iter().any(|known: &Object<'_>| known.address() == disk.address())
        {
            found.push(disk);
        }
    }
    Ok(found)
}

fn private_of<'a>(machine: &'a Machine<'_>, class: u64) -> Result<Object<'a>, Fault> {
    let set = machine.space().object(machine.u64("class_kset")?, "kset")?;
    let walk = set.get("list")?.list("kobject", "entry")?;
    for object in walk.items {
        let private = object.container("subsys_private", "subsys.kobj")?;
        if private.get("class").and_then(|of| of.pointer()).is_ok_and(|of| of == class) {
            return Ok(private);
        }
    }
    Err(match walk.broken {
        Some(why) => Fault::NotRead(format!("the class of disks was not found: {why}")),
        None => Fault::NoType("subsys_private of block_class".into()),
    })
}
