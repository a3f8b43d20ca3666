//! What kmemleak tracks (`CONFIG_DEBUG_KMEMLEAK`): slab objects, vmalloc areas, per-CPU memory and early allocations with their stacks,
//! all on one list, and those that its last scan left without references.

use pagehaul_btf::Fault;
use pagehaul_inspect::{Machine, task_name};
use pagehaul_kernel::ReadVirtual;
use pagehaul_present::number::{count, counted};

use super::counts::{By, Counts, Row};
use super::names::Stacks;
use super::records::{Task, label};
use crate::report::{Kmemleak, KmemleakUser};

/// Objects that are read.
const MAX_OBJECTS: u64 = 4 << 20;
/// Bytes of a `struct kmemleak_object`, at most.
const MAX_SIZE: u64 = 4096;
/// Flags of an object: it is allocated; a scan reported it. The same since 2.6.31, where kmemleak begins.
const OBJECT_ALLOCATED: u64 = 1;
const OBJECT_REPORTED: u64 = 2;
/// `min_count` and `count` of objects that no scan looks for.
const BLACK: i64 = -1;
/// Seconds that are younger than an unreferenced object (`MSECS_MIN_AGE`).
const MIN_AGE: u64 = 5;

/// Reads all objects. `None`: the kernel has no kmemleak, or it is off.
pub(crate) fn kmemleak(
    machine: &Machine<'_>,
    even_remote: bool,
    missing: &mut Vec<String>,
) -> Option<Kmemleak> {
    machine.space().record("kmemleak_object").ok()?;
    let reader = Reader::new(machine).and_then(|reader| Ok((machine.memory().u64(reader.head)?, reader)));
    let (first, mut reader) = match reader {
        Ok(found) => found,
        Err(why) => {
            missing.push(format!("kmemleak: {why}"));
            return None;
        }
    };
    // Switched off at boot, or after an error.
    if first == reader.head {
        return None;
    }
    if machine.memory().is_remote() && !even_remote {
        missing.push("kmemleak: its objects are read from a server only with --references".into());
        return None;
    }
    reader.walk();
    Some(reader.finish(missing))
}

/// A number in an object.
#[derive(Clone, Copy)]
struct Field {
    at: usize,
    bytes: usize,
}

/// Where an object has what.
struct Layout {
    size: usize,
    list: u64,
    flags: Field,
    bytes: Field,
    min_count: Field,
    count: Field,
    jiffies: Field,
    pid: Field,
    comm: usize,
    /// A handle of the stack depot since 6.2 (56a61617dd22); before, an array of addresses and their number.
    handle: Option<Field>,
    trace: Option<(usize, Field)>,
}

impl Layout {
    fn new(machine: &Machine<'_>) -> Result<Self, Fault> {
        let space = machine.space();
        let offset = |member| space.offset_of("kmemleak_object", member).map(|offset| offset as usize);
        let field = |member, bytes| offset(member).map(|at| Field { at, bytes });
        let size = space.size_of("kmemleak_object")?;
        if size > MAX_SIZE {
            return Err(Fault::WrongKind(format!("struct kmemleak_object of {size} bytes"), "a smaller one"));
        }
        let trace = match (offset("trace"), field("trace_len", 4)) {
            (Ok(at), Ok(length)) => Some((at, length)),
            _ => None,
        };
        let handle = match trace {
            Some(_) => None,
            None => Some(field("trace_handle", 4)?),
        };
        Ok(Self {
            size: size as usize,
            list: offset("object_list")? as u64,
            flags: field("flags", 4)?,
            bytes: field("size", 8)?,
            min_count: field("min_count", 4)?,
            count: field("count", 4)?,
            jiffies: field("jiffies", 8)?,
            pid: field("pid", 4)?,
            comm: offset("comm")?,
            handle,
            trace,
        })
    }

    /// Returns what the bytes of an object say.
    fn object(&self, object: &[u8]) -> Option<Object> {
        let number = |field: Field| -> Option<u64> {
            let bytes = object.get(field.at..field.at.checked_add(field.bytes)?)?;
            Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        let signed = |field: Field| number(field).map(|number| i64::from(number as u32 as i32));
        let word = |at: usize| number(Field { at, bytes: 8 });
        let by = match (self.handle, self.trace) {
            (Some(handle), _) => number(handle).filter(|it| *it != 0).map(|it| By::Stack(it as u32)),
            (None, Some((at, length))) => {
                let frames = number(length)?.min(self.size as u64 / 8) as usize;
                let addresses: Vec<u64> = (0..frames).map_while(|frame| word(at + 8 * frame)).collect();
                (!addresses.is_empty()).then_some(By::Addresses(addresses))
            }
            (None, None) => None,
        };
        let (min_count, references) = (signed(self.min_count)?, signed(self.count)?);
        Some(Object {
            flags: number(self.flags)?,
            bytes: number(self.bytes)?,
            is_white: references != BLACK && references < min_count,
            jiffies: number(self.jiffies)?,
            task: (task_name(object.get(self.comm..)?)?, number(self.pid)? as u32),
            by,
        })
    }
}

/// An object.
struct Object {
    flags: u64,
    bytes: u64,
    /// Whether the scan found fewer pointers than it should have.
    is_white: bool,
    /// When it was allocated.
    jiffies: u64,
    task: Task,
    by: Option<By>,
}

/// When it scanned, in jiffies.
#[derive(Clone, Copy)]
struct Scan {
    last: u64,
    min_age: u64,
    now: u64,
}

impl Scan {
    /// Whether an object that is as old can be unreferenced (`unreferenced_object`).
    fn has_seen(&self, jiffies: u64) -> bool {
        self.last.wrapping_sub(jiffies.wrapping_add(self.min_age)) as i64 >= 0
    }

    /// Seconds from the last scan to the end.
    fn age(&self) -> Option<u64> {
        // BTF has no CONFIG_HZ.
        let per_second = self.min_age / MIN_AGE;
        (self.last != 0).then(|| self.now.saturating_sub(self.last).checked_div(per_second)).flatten()
    }
}

struct Reader<'a> {
    machine: &'a Machine<'a>,
    memory: &'a dyn ReadVirtual,
    layout: Layout,
    head: u64,
    scan: Result<Scan, Fault>,
    read: u64,
    all: Counts<(), Task>,
    leaks: Counts<(), Task>,
    found: Kmemleak,
    broken: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(machine: &'a Machine<'a>) -> Result<Self, Fault> {
        let scan = || {
            Ok(Scan {
                last: machine.u64("jiffies_last_scan")?,
                min_age: machine.u64("jiffies_min_age")?,
                now: machine.u64("jiffies_64")?,
            })
        };
        Ok(Self {
            machine,
            memory: machine.memory(),
            layout: Layout::new(machine)?,
            head: machine.symbol("object_list")?,
            scan: scan(),
            read: 0,
            all: Counts::new(),
            leaks: Counts::new(),
            found: Kmemleak { is_whole: true, ..Kmemleak::default() },
            broken: None,
        })
    }

    /// Follows the list, and from its end what cannot be reached so. Each entry must point back to the one before: such a list meets its
    /// head and no other entry again, and no entry counts twice. Millions of addresses need not be remembered.
    fn walk(&mut self) {
        let (next, prev) = (0, 8);
        if let Err(why) = self.follow(next, prev) {
            self.found.is_whole = false;
            self.broken = Some(why);
            // The first reason is the one to tell.
            let _: Result<(), String> = self.follow(prev, next);
        }
    }

    fn follow(&mut self, forward: u64, back: u64) -> Result<(), String> {
        let mut object = vec![0; self.layout.size];
        let early = |why: &dyn std::fmt::Display| format!("the list of objects ends early: {why}");
        let mut at = self.head;
        loop {
            let next = self.memory.u64(at.wrapping_add(forward)).map_err(|why| early(&why))?;
            if next == self.head {
                return Ok(());
            }
            if self.read >= MAX_OBJECTS {
                return Err(format!("only the first {} objects are read", count(MAX_OBJECTS)));
            }
            let points_to = self.memory.u64(next.wrapping_add(back)).map_err(|why| early(&why))?;
            if points_to != at {
                return Err(early(&format!("{next:#x} follows {at:#x}, but does not point back to it")));
            }
            let start = next.wrapping_sub(self.layout.list);
            self.memory.read(start, &mut object).map_err(|why| early(&why))?;
            self.read += 1;
            if let Some(found) = self.layout.object(&object) {
                self.count(found);
            }
            at = next;
        }
    }

    fn count(&mut self, object: Object) {
        if object.flags & OBJECT_ALLOCATED == 0 {
            return;
        }
        let is_old = self.scan.as_ref().is_ok_and(|scan| scan.has_seen(object.jiffies));
        let is_leak = object.flags & OBJECT_REPORTED != 0 && object.is_white && is_old;
        let found = &mut self.found;
        found.objects += 1;
        found.bytes = found.bytes.saturating_add(object.bytes);
        if is_leak {
            found.unreferenced += 1;
            found.unreferenced_bytes = found.unreferenced_bytes.saturating_add(object.bytes);
        }
        let Some(by) = object.by else {
            found.unrecorded += 1;
            return;
        };
        if is_leak {
            self.leaks.add((), by.clone(), object.bytes, object.task);
        }
        self.all.add((), by, object.bytes, object.task);
    }

    fn finish(self, missing: &mut Vec<String>) -> Kmemleak {
        let mut stacks = Stacks::new(self.machine);
        let (leak_count, count) = (self.leaks.len(), self.all.len());
        let cut = self.all.cut;
        // Stacks of leaks come first: those beyond the limit are not read.
        let (leaks, _) = self.leaks.largest(&mut stacks);
        let (largest, lost) = self.all.largest(&mut stacks);
        let scanned = match &self.scan {
            Ok(scan) => scan.age(),
            Err(why) => {
                missing.push(format!("kmemleak: which objects are unreferenced is not known: {why}"));
                None
            }
        };
        if let Some(why) = self.broken {
            missing.push(format!("kmemleak: {why}"));
        }
        if let Some(why) = stacks.why {
            let failed = counted(stacks.failed, "stack");
            missing.push(format!("kmemleak: {failed} cannot be read, the first because: {why}"));
        }
        if cut > 0 {
            missing.push(format!("kmemleak: {} of more stacks than are counted", counted(cut, "object")));
        }
        Kmemleak {
            scanned,
            // Unreadable: the objects are still right.
            is_enabled: self.machine.u32("kmemleak_enabled").map_or(true, |enabled| enabled != 0),
            unrecorded: self.found.unrecorded.saturating_add(lost),
            leaks: leaks.into_iter().map(user).collect(),
            leak_count,
            largest: largest.into_iter().map(user).collect(),
            count,
            ..self.found
        }
    }
}

fn user(row: Row<(), Task>) -> KmemleakUser {
    KmemleakUser {
        objects: row.objects,
        bytes: row.bytes,
        stack: row.stack,
        allocated_by: row.named.iter().map(label).collect(),
        tasks: row.tasks,
    }
}
