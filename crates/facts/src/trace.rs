//! The frames of a crash.

use pagehaul_kernel::Caller;

use crate::event::{Event, Kind};
use crate::frame::{Frame, TraceLine, ends_interrupt, pointer, trace_line};
use crate::line::Line;

/// Lines that a crash can have, its registers and modules included.
const MAX_LINES: usize = 600;
/// Frames that are kept.
const MAX_FRAMES: usize = 64;

/// Returns the lines of a crash, from its first. Other CPUs write between them: only those of the same caller, where the
/// kernel keeps it.
pub(crate) fn lines_of_event<'a>(lines: &[Line<'a>], event: &Event) -> Vec<Line<'a>> {
    let mut start = event.start;
    if event.kind == Kind::RcuStall {
        // The CPU that stalls writes its stack when an NMI asks for it.
        let after = lines.iter().skip(start).take(MAX_LINES);
        let asked = after.clone().position(|line| line.text.starts_with("NMI backtrace for cpu"));
        start += asked.unwrap_or(0);
    }
    let caller: Option<Caller> = lines.get(start).and_then(|line| line.caller);
    let same = lines.iter().skip(start).filter(|line| line.caller == caller);
    same.take(MAX_LINES).copied().collect()
}

/// Returns the frames of a crash, innermost first: from the instruction pointer, else from the trace, to where the kernel
/// was entered. Guesses and repetitions are left out.
pub(crate) fn frames(lines: &[Line<'_>], kind: Kind) -> Vec<Frame> {
    let mut frames = Vec::new();
    let header = lines.iter().position(|line| is_header(line.text));
    let at = header.unwrap_or(lines.len());
    // The instruction pointer stands before the trace; on ppc64 the registers, too.
    for line in lines.iter().take(at).skip(1) {
        if is_next(line.text) {
            break;
        }
        if let Some(TraceLine::Pointer(Some(frame))) = pointer(line.text) {
            frames.push(frame);
            break;
        }
    }
    let own = frames.len();
    let (mut entered, mut interrupted) = (false, false);
    for line in lines.iter().skip(at + 1) {
        // The news of a lockup came in an interrupt: what it interrupted is to blame. Other crashes in an interrupt have nothing
        // to do with what it interrupted.
        let messenger = kind.interrupts() && own == 0 && !(interrupted && frames.iter().any(blamed));
        if messenger && ends_interrupt(line.text) {
            frames.clear();
            interrupted = true;
        }
        match trace_line(line.text) {
            TraceLine::Frame(frame) => {
                entered |= frame.is_entry();
                if frames.len() < MAX_FRAMES {
                    frames.push(frame);
                }
            }
            TraceLine::Pointer(frame) if messenger => {
                interrupted = true;
                frames.clear();
                frames.extend(frame);
            }
            TraceLine::User | TraceLine::End => break,
            TraceLine::Pointer(_) if entered && frames.iter().any(blamed) => break,
            TraceLine::Guess | TraceLine::Other | TraceLine::Pointer(_) => {}
        }
    }
    let mut inner = Vec::new();
    for frame in frames {
        if frame.is_entry() {
            if inner.iter().any(blamed) {
                break;
            }
            continue;
        }
        // Recursion has any depth, and arm64 has the instruction pointer in the trace, too.
        if inner.last() != Some(&frame) {
            inner.push(frame);
        }
    }
    inner
}

fn blamed(frame: &Frame) -> bool {
    !frame.is_skipped() && !frame.is_entry()
}

fn is_header(text: &str) -> bool {
    // `Call Trace:`, arm64's `Call trace:`, old arm64 and arm's `Backtrace:`.
    let text = text.trim();
    text.eq_ignore_ascii_case("call trace:") || text == "Backtrace:" || text == "Trace:"
}

/// Whether another report begins.
fn is_next(text: &str) -> bool {
    text.starts_with("---[ end ") || text.starts_with("INFO: task ") || text.starts_with(crate::event::PANIC)
}
