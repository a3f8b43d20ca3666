//! IPC of System V: shared memory, semaphores, message queues.

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::PageCount;
use serde::Serialize;

use super::namespaces::{Namespace, namespaces};
use super::ram::ram_bytes;
use super::tasks::Tasks;
use crate::hex::Hex;
use crate::machine::Machine;

/// Objects that are read.
const MAX_OBJECTS: usize = 1 << 18;
/// Indices of `ipc_namespace.ids` (`IPC_SEM_IDS` and its neighbours, ipc/util.h).
const KINDS: [&str; 3] = ["semaphores", "message queue", "shared memory"];

/// An object of IPC.
#[derive(Debug, Clone, Serialize)]
pub struct IpcObject {
    /// `semaphores`, `message queue` or `shared memory`.
    pub kind: &'static str,
    /// Inode number of its namespace, unless that is the initial one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// Its ID.
    pub id: u64,
    /// The key by which programs find it; 0 if it is private.
    pub key: i64,
    /// Address of its `struct kern_ipc_perm`.
    pub address: Hex,
    /// The owner's user ID.
    pub uid: u64,
    /// Permissions.
    pub mode: u64,
    /// Semaphores, or messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Bytes of the messages, or of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How often the memory is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<u64>,
    /// Pages of the memory that exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageCount>,
}

/// All of them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Ipc {
    /// By namespace, kind and index.
    pub objects: Vec<IpcObject>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the objects of all namespaces that tasks are in.
pub fn ipc(machine: &Machine<'_>, tasks: &Tasks) -> Ipc {
    let mut found = Ipc::default();
    if let Err(why) = read(machine, tasks, &mut found) {
        found.broken.push(format!("IPC: {why}"));
    }
    found.broken.truncate(16);
    found
}

fn read(machine: &Machine<'_>, tasks: &Tasks, found: &mut Ipc) -> Result<(), Fault> {
    let initial = machine.symbol("init_ipc_ns")?;
    let ram = ram_bytes(machine);
    for Namespace { object, number, .. } in namespaces(machine, tasks, "ipc_ns", &mut found.broken) {
        let number = Some(number).filter(|_| object.address() != initial);
        for (index, kind) in KINDS.into_iter().enumerate() {
            let ids = object.get("ids")?.index(index as u64)?.get("ipcs_idr.idr_rt")?;
            let walk = match ids.xarray() {
                Ok(walk) => walk,
                Err(why) => {
                    found.broken.push(format!("IPC ({kind}): {why}"));
                    continue;
                }
            };
            found.broken.extend(walk.broken);
            for (_, address) in walk.items {
                if found.objects.len() >= MAX_OBJECTS {
                    found.broken.push(format!("there are more than {MAX_OBJECTS} objects of IPC"));
                    return Ok(());
                }
                let permissions = machine.space().object(address, "kern_ipc_perm")?;
                match describe(&permissions, kind, number) {
                    // Messages are in memory; shared memory need not be.
                    Ok(object)
                        if kind == "message queue" && object.bytes.is_some_and(|bytes| bytes > ram) =>
                    {
                        let bytes = object.bytes.unwrap_or(0);
                        found.broken.push(format!(
                            "{kind} at {address:#x}: {bytes} bytes are more than the memory of the machine: it is damaged"
                        ));
                    }
                    Ok(object) => found.objects.push(object),
                    Err(why) => found.broken.push(format!("{kind} at {address:#x}: {why}")),
                }
            }
        }
    }
    Ok(())
}

fn describe(
    permissions: &Object<'_>,
    kind: &'static str,
    namespace: Option<u64>,
) -> Result<IpcObject, Fault> {
    let mut found = IpcObject {
        kind,
        namespace,
        id: permissions.number("id")?,
        key: permissions.get("key")?.signed()?,
        address: Hex(permissions.address()),
        uid: permissions.number("uid")?,
        mode: permissions.number("mode")? & 0o777,
        count: None,
        bytes: None,
        attached: None,
        pages: None,
    };
    match kind {
        "semaphores" => {
            let set = permissions.container("sem_array", "sem_perm")?;
            found.count = Some(set.number("sem_nsems")?);
        }
        "message queue" => {
            let queue = permissions.container("msg_queue", "q_perm")?;
            found.count = Some(queue.number("q_qnum")?);
            found.bytes = Some(queue.number("q_cbytes")?);
        }
        _ => {
            let memory = permissions.container("shmid_kernel", "shm_perm")?;
            found.bytes = Some(memory.number("shm_segsz")?);
            found.attached = Some(memory.number("shm_nattch")?);
            let pages =
                memory.get("shm_file->f_inode->i_mapping->nrpages").and_then(|pages| pages.unsigned());
            found.pages = pages.ok().map(PageCount::new);
        }
    }
    Ok(found)
}
