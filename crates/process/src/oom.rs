//! Which process the kernel ends where memory runs out: this program, not the one that it saves.
//!
//! In a control group near its limit the kernel ends the largest process (mm/oom_kill.c), which is the one that is saved.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

const ADJUSTMENT: &str = "/proc/self/oom_score_adj";

/// The adjustment before it was changed, with a newline.
static BEFORE: OnceLock<String> = OnceLock::new();

/// Has this program be the first to be ended.
pub(crate) fn end_this_program_first() {
    let text = fs::read_to_string(ADJUSTMENT);
    // Everybody may raise it. Where there is no such file, nothing changes.
    if let Ok(before) = text
        && BEFORE.set(before).is_ok()
    {
        let _ = fs::write(ADJUSTMENT, "1000");
    }
}

/// Has a program that this one starts be ended no sooner than without [`end_this_program_first`]. Everybody may lower it again to what
/// it was (Linux 2.6.39).
pub(crate) fn end_no_sooner(command: &mut Command) {
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: it may be called between fork and exec: it makes system calls only.
    unsafe {
        command.pre_exec(move || {
            let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if file >= 0 {
                libc::write(file, before.as_ptr().cast(), before.len());
                libc::close(file);
            }
            Ok(())
        })
    };
}
