//! The report of a kernel without symbols: of an incomplete dump that has lost them, or of a kernel that was built without them. It rests
//! on VMCOREINFO, the registers in the notes and the log, and denies nothing that only symbols lead to.

use pagehaul_facts::{Crash, Event, UtsNames, lines_of};
use pagehaul_kernel::{KernelError, KernelLog, unread_utsname};

use super::gaps::Part;
use super::triage::Notes;
use crate::findings::death::{Death, death};
use crate::machine::Machine;
use crate::machine::taints::taints_of;
use crate::model::cpus::{Cpu, of_notes};
use crate::structures::system::{System, cpus_of_notes};

/// What is read: the crash, and everything that is not empty without symbols.
pub(super) struct Read {
    pub(super) system: System,
    pub(super) death: Death,
    pub(super) crash: Option<Crash>,
    pub(super) cpus: Vec<Cpu>,
}

/// Reads what there is, and adds to `notes` what there is not.
pub(super) fn read(
    machine: &Machine<'_>,
    log: Result<&KernelLog, &KernelError>,
    notes: &mut Notes<'_>,
) -> Read {
    let empty = KernelLog::default();
    // A kernel writes it when it crashes.
    let crashed = machine.kernel().crash_time().is_some();
    let (mut death, crash) = death(log.unwrap_or(&empty), crashed);
    notes.of_log(log, &mut death);
    if death.kind.is_none() && death.unknown.is_none() {
        death.unknown = not_denied(log.unwrap_or(&empty), crashed).map(str::to_owned);
    }
    let cpus = of_notes(machine, &machine.unwinder(), &death);
    let system = system(machine, crash.as_ref(), notes);
    notes.of_notes(&cpus);
    if !cpus.is_empty() {
        notes.missing.push(format!("stacks: addresses have no names{}", moved(machine).unwrap_or_default()));
    }
    for part in Part::ALL.into_iter().filter(|part| *part != Part::Log) {
        notes.gaps.add(part, part != Part::Cpus || cpus.is_empty());
    }
    let unknown = [Part::Tasks, Part::Locks, Part::Memory, Part::Slab, Part::Vmalloc];
    let unknown = unknown.into_iter().chain([Part::Requests, Part::Suspended, Part::Network, Part::Modules]);
    let names: Vec<&str> = unknown.map(Part::name).collect();
    notes.missing.push(format!("{}: only symbols lead to them", names.join(", ")));
    Read { system, death, crash, cpus }
}

/// What leads from addresses of code to names, outside of the dump.
fn moved(machine: &Machine<'_>) -> Option<String> {
    let offset = u64::from_str_radix(machine.kernel().info().get("KERNELOFFSET")?, 16).ok()?;
    if offset == 0 {
        return Some(": those of the kernel are the ones in System.map".into());
    }
    Some(format!(": those of the kernel are {offset:#x} (KERNELOFFSET) above the ones in System.map"))
}

/// Why a log without a panic says nothing.
fn not_denied(log: &KernelLog, crashed: bool) -> Option<&'static str> {
    match Event::find(&lines_of(log)) {
        _ if crashed => Some("the kernel crashed, as VMCOREINFO says (CRASHTIME), but the log has no panic"),
        Some(_) => Some(
            "the log has no panic; without the kernel's symbols it is not known whether an oops in it ended the machine",
        ),
        None => None,
    }
}

fn system(machine: &Machine<'_>, crash: Option<&Crash>, notes: &mut Notes<'_>) -> System {
    let kernel = machine.kernel();
    let names = || {
        let at = kernel.new_utsname_at().ok_or_else(|| "VMCOREINFO has no init_uts_ns".to_owned())?;
        let mut bytes = [0; 390];
        machine.memory().read(at, &mut bytes).map_err(|why| unread_utsname(&why))?;
        Ok::<_, String>(UtsNames::new(&bytes, kernel.release(), machine.notes())?)
    };
    let names = names().map_err(|why| notes.missing.push(format!("the machine: its name: {why}"))).ok();
    drop(machine.take_lost());
    let taint = crash.and_then(|crash| crash.taint.as_deref());
    notes.missing.push(match taint {
        Some(_) => {
            "the machine: uptime, load and command line are not known; taints are those in the log's report"
                .into()
        }
        None => "the machine: uptime, load, command line and taints are not known".into(),
    });
    let (hostname, version) = names.map_or((None, None), |names| (names.host, names.version));
    System {
        release: kernel.release().to_owned(),
        version,
        hostname,
        crash_time: kernel.crash_time(),
        uptime: None,
        load: None,
        page_size: machine.page_size(),
        cpus: cpus_of_notes(machine.notes()),
        command_line: None,
        taints: taints_of(taint.unwrap_or_default()),
    }
}
