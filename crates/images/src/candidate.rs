//! Copies of VMCOREINFO in memory.

use std::collections::HashMap;

use pagehaul_machine::VmcoreInfo;
use pagehaul_physmem::{PhysMemory, View};
use pagehaul_vmcore::search;

/// The first line of VMCOREINFO (`crash_save_vmcoreinfo_init`, kernel/vmcore_info.c).
const FIRST_LINE: &[u8] = b"OSRELEASE=";
/// What all kernels write among the first lines; programs that only name OSRELEASE lack it.
const OTHERS: [&str; 2] = ["\nPAGESIZE=", "\nSYMBOL(init_uts_ns)="];
/// The name of the note (`CRASH_CORE_NOTE_NAME`), behind the sizes of name and contents and the type.
const NOTE_NAME: &[u8] = b"VMCOREINFO\0\0";
/// Bytes before the text of the note that the kernel keeps at the start of a page (`vmcoreinfo_note`, since 203e9e41219b, 4.13).
const NOTE_HEADER: u64 = 12 + NOTE_NAME.len() as u64;
/// Bytes of VMCOREINFO at most: one page (`VMCOREINFO_BYTES`).
const MAX_TEXT: usize = 64 << 10;
const PAGE: u64 = 4096;

/// Places that are read. Programs that write VMCOREINFO, such as the kernel, have the line without the rest.
const MAX_PLACES: usize = 65_536;
/// Different texts that are judged.
const MAX_TEXTS: usize = 256;

/// A text that may be a kernel's VMCOREINFO.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) text: Vec<u8>,
    pub(crate) info: VmcoreInfo,
    /// Where it was found first.
    pub(crate) at: u64,
    /// Whether a copy is where the kernel keeps its note.
    pub(crate) is_note: bool,
}

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    pub(crate) found: Vec<Candidate>,
    /// Whether there were more than are judged.
    pub(crate) more: bool,
}

/// Searches all memory.
pub(crate) fn candidates(memory: &dyn PhysMemory, threads: usize) -> Candidates {
    let places = search::search(memory, FIRST_LINE, MAX_PLACES, threads);
    let mut view = memory.view();
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut all = Candidates { found: Vec::new(), more: places.more };
    for at in places.at {
        let Some(text) = text(view.as_mut(), at) else { continue };
        let is_note = is_note(view.as_mut(), at);
        if let Some(candidate) = known.get(&text).and_then(|index| all.found.get_mut(*index)) {
            candidate.is_note |= is_note;
        } else if all.found.len() < MAX_TEXTS {
            known.insert(text.clone(), all.found.len());
            let info = VmcoreInfo::parse(&text);
            all.found.push(Candidate { text, info, at, is_note });
        } else {
            all.more = true;
        }
    }
    all
}

/// Returns the lines at `at`: printable, up to the first zero. `None` if they are not VMCOREINFO.
fn text(view: &mut dyn View, at: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let is_text = |byte: u8| matches!(byte, b' '..=b'~' | b'\n');
    while text.len() < MAX_TEXT {
        let next = at.checked_add(text.len() as u64)?;
        // What does not follow in the source ends it.
        let Ok(window) = view.window(next, PAGE as usize) else { break };
        let len = window.iter().take_while(|byte| is_text(**byte)).count();
        text.extend_from_slice(window.get(..len)?);
        if len < window.len() {
            break;
        }
    }
    text.truncate(MAX_TEXT);
    // A line that is cut could be a number that is too short.
    let end = text.iter().rposition(|byte| *byte == b'\n')? + 1;
    text.truncate(end);
    let lines = std::str::from_utf8(&text).ok()?;
    OTHERS.iter().all(|line| lines.contains(line)).then_some(text)
}

/// Returns whether the text at `at` is in a note at the start of a page.
fn is_note(view: &mut dyn View, at: u64) -> bool {
    let mut header = [0; NOTE_HEADER as usize];
    let Some(start) = at.checked_sub(NOTE_HEADER).filter(|start| start % PAGE == 0) else { return false };
    view.read(start, &mut header).is_ok()
        && header.starts_with(&(NOTE_NAME.len() as u32 - 1).to_le_bytes())
        && header.ends_with(NOTE_NAME)
}
