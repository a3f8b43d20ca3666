//! Stacks.

use pagehaul_inspect::{FrameName, Hex, StackTrace};

pub(super) fn stack_lines(stack: &StackTrace, out: &mut String) {
    put_frames(&stack.frames, true, usize::MAX, out);
    if !stack.complete {
        put!(out, "    (ends here: {})", stack.end);
    }
}

/// Registers, three a line.
pub(super) fn put_registers(registers: &[(&str, Hex)], out: &mut String) {
    for row in registers.chunks(3) {
        let row: Vec<String> =
            row.iter().map(|(name, value)| format!("{name:>5} {:016x}", value.0)).collect();
        put!(out, "    {}", row.join("  "));
    }
}

/// At most so many lines. Calls of a function by itself from one place are one line.
pub(super) fn put_frames(frames: &[FrameName], addresses: bool, most: usize, out: &mut String) {
    for calls in frames.chunk_by(|a, b| a.pc == b.pc).take(most) {
        let Some(frame) = calls.first() else { continue };
        let times = if calls.len() > 1 { format!(" ({} times)", calls.len()) } else { String::new() };
        put!(out, "    {}{times}", frame_text(frame, addresses));
    }
}

fn frame_text(frame: &FrameName, addresses: bool) -> String {
    let mark = if frame.guess { "? " } else { "" };
    let from = if frame.interrupted { " <interrupted>" } else { "" };
    if addresses {
        return format!("{:016x} {mark}{}{from}", frame.pc.0, frame.name);
    }
    format!("{mark}{}{from}", frame.name)
}
