//! Lines of a trace: frames, instruction pointers, marks of stacks.

use std::borrow::Cow;
use std::fmt;

use crate::skip;

/// A function on a stack, by a name that is the same for all builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Name without offset and without what compilers add.
    pub function: String,
    /// Its module; none in the kernel itself.
    pub module: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.module {
            Some(module) => write!(out, "{module}:{}", self.function),
            None => out.write_str(&self.function),
        }
    }
}

/// Whether a function of the kernel, by any build's name, only reports, waits, copies or allocates for others, or enters the kernel.
pub fn is_messenger(function: &str) -> bool {
    let name = family(function);
    skip::list().skips(&name) || skip::list().ends(&name)
}

impl Frame {
    /// Whether the function only reports, waits, copies or allocates for others.
    pub(crate) fn is_skipped(&self) -> bool {
        self.module.is_none() && skip::list().skips(&self.function)
    }

    /// Whether a configuration adds the function, or most builds inline it: a coarse signature leaves it out.
    pub(crate) fn is_generic(&self) -> bool {
        self.module.is_none() && skip::list().is_generic(&self.function)
    }

    /// Whether the kernel was entered here: frames further out say nothing.
    pub(crate) fn is_entry(&self) -> bool {
        self.module.is_none() && skip::list().ends(&self.function)
    }
}

/// What a line of a trace says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TraceLine {
    /// A function that the unwinder found.
    Frame(Frame),
    /// A function that it is not sure of (`?`).
    Guess,
    /// An instruction pointer in the kernel, of a function or of nothing known.
    Pointer(Option<Frame>),
    /// An instruction pointer of a process.
    User,
    /// A mark of a stack, a register, code: goes on.
    Other,
    /// Anything else.
    End,
}

/// Whether the stack of an interrupt or NMI ends at this line: what follows was interrupted.
pub(crate) fn ends_interrupt(text: &str) -> bool {
    let mut rest = text.trim_start();
    while let Some((mark, after)) = mark(rest) {
        if matches!(mark, "/IRQ" | "/NMI" | "EOI" | "EOE" | "<EOE" | "/SOFTIRQ") {
            return true;
        }
        rest = after.trim_start();
    }
    false
}

/// Reads a line after `Call Trace:`.
pub(crate) fn trace_line(text: &str) -> TraceLine {
    if let Some(found) = pointer(text) {
        return found;
    }
    let mut rest = text.trim_start();
    // 4.x has the mark and the first frame of a stack in one line.
    while let Some((_, after)) = mark(rest) {
        rest = after.trim_start();
    }
    if rest.is_empty() {
        return TraceLine::Other;
    }
    let (rest, guess) = addresses(rest);
    match named(rest) {
        Some(_) if guess || rest.ends_with("(unreliable)") => TraceLine::Guess,
        Some(frame) => TraceLine::Frame(frame),
        None if is_detail(rest) => TraceLine::Other,
        None => TraceLine::End,
    }
}

/// `<TASK>`, `</IRQ>`, `<<EOE>>`, `<#DF>`; not `<ffffffff81000000>`.
fn mark(text: &str) -> Option<(&str, &str)> {
    let (mark, rest) = text.strip_prefix('<')?.split_once('>')?;
    let upper = |c: char| c.is_ascii_uppercase() || "/#<_ ".contains(c) || c.is_ascii_digit();
    if mark.len() > 16 || !mark.chars().all(upper) {
        return None;
    }
    Some((mark, rest.strip_prefix('>').unwrap_or(rest)))
}

/// Takes the addresses that stand before a name, and returns whether a `?` does too.
fn addresses(mut text: &str) -> (&str, bool) {
    let mut guess = false;
    loop {
        text = text.trim_start();
        let hex = |text: &str| {
            let digits = text.trim_start_matches("0x");
            digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        if let Some(rest) = text.strip_prefix("? ") {
            (text, guess) = (rest, true);
        } else if let Some((address, rest)) = text.strip_prefix("[<").and_then(|rest| rest.split_once(">]"))
            && hex(address)
        {
            text = rest;
        } else if let Some((address, rest)) = text.strip_prefix("([<").and_then(|rest| rest.split_once(">]"))
            && hex(address)
        {
            // s390 brackets what it guesses.
            (text, guess) = (rest, true);
        } else if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            && hex(address)
        {
            text = rest;
        } else {
            return (text, guess);
        }
    }
}

/// `name+0x12/0x340 [module]`, where a build ID can follow the module's name.
fn named(text: &str) -> Option<Frame> {
    let (name, rest) = text.split_once("+0x")?;
    if name.is_empty() || name.len() > 512 || name.contains([' ', '\t', '(']) {
        return None;
    }
    let (offset, rest) = rest.split_once("/0x")?;
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let size = rest.split([' ', ')']).next()?;
    if !is_hex(offset) || !is_hex(size) {
        return None;
    }
    let module = rest.split_once(" [").and_then(|(_, rest)| rest.split([' ', ']']).next());
    Some(Frame { function: family(name), module: module.map(str::to_owned) })
}

/// The name of a function without what differs by build, architecture or release.
fn family(name: &str) -> String {
    // Compilers add .isra.0, .constprop.0, .part.0, .cold, .llvm.123; ppc64 begins names with a dot.
    let name = name.trim_start_matches('.');
    let name = name.split('.').next().unwrap_or(name);
    let name: Cow<'_, str> = match name.starts_with("_R") || name.starts_with("_ZN") {
        // Without the hash of the crate.
        true => format!("{:#}", rustc_demangle::demangle(name)).into(),
        false => name.into(),
    };
    let name = name.strip_prefix("__pfx_").or_else(|| name.strip_prefix("__cfi_")).unwrap_or(&name);
    // Allocation profiling renamed functions in 6.10 (b951aaff5035).
    let name = name.strip_suffix("_noprof").unwrap_or(name);
    // One system call has functions by architecture, and before 4.17 SyS_ and SYSC_ (d5a00528b58c, e145242ea0df).
    let wrappers = ["__x64_", "__ia32_", "__arm64_", "__s390x_", "__riscv_", "__se_", "__do_"];
    let call = wrappers
        .iter()
        .find_map(|wrapper| name.strip_prefix(wrapper).filter(|rest| rest.starts_with("sys_")));
    match call {
        Some(call) => call.to_owned(),
        None => match name.strip_prefix("SyS_").or_else(|| name.strip_prefix("SYSC_")) {
            Some(call) => format!("sys_{call}"),
            None => name.to_owned(),
        },
    }
}

/// Reads a line with an instruction pointer: of x86 (`RIP:`, 32-bit `EIP:`), arm64, riscv, ppc64, s390.
pub(crate) fn pointer(text: &str) -> Option<TraceLine> {
    let text = text.trim_start();
    let x86 = text.strip_prefix("RIP:").or_else(|| text.strip_prefix("EIP:"));
    if let Some(rest) = x86 {
        let rest = rest.trim_start();
        let rest = match rest.split_once(':') {
            // Code segments of processes.
            Some(("0033" | "0023" | "002b", _)) => return Some(TraceLine::User),
            Some((segment, rest)) if segment.len() == 4 => rest,
            _ => rest,
        };
        let (rest, _) = addresses(rest);
        return Some(TraceLine::Pointer(named(rest)));
    }
    for start in ["pc : ", "PC is at ", "epc : ", "NIP "] {
        if let Some(rest) = text.strip_prefix(start) {
            let (rest, _) = addresses(rest);
            // ppc64 prints the registers first: `NIP:  c0000…`.
            return Some(TraceLine::Pointer(named(rest)));
        }
    }
    let (_, name) = text.strip_prefix("Krnl PSW : ")?.rsplit_once('(')?;
    Some(TraceLine::Pointer(named(name)))
}

/// Lines that stand between the frames of two contexts: registers and code.
fn is_detail(text: &str) -> bool {
    let name = text.split([':', ' ']).next().unwrap_or_default();
    let registers = [
        "Code",
        "RSP",
        "RBP",
        "CR2",
        "FS",
        "CS",
        "ORIG_RAX",
        "Exception",
        "PKRU",
        "sp",
        "lr",
        "pstate",
        "LR",
    ];
    registers.contains(&name)
        || name.len() <= 3 && name.starts_with(['R', 'x', 'D', 'E']) && text.contains(':')
        || text.starts_with("--- interrupt")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, module: Option<&str>) -> Frame {
        Frame { function: function.into(), module: module.map(str::to_owned) }
    }

    #[test]
    fn frames_of_every_format() {
        let same = [
            " scene_init+0x49/0xff0 [crash]",
            " scene_init.cold+0x49/0xff0 [crash 6b2c0d8e1f00aa]",
            " [<ffffffffc0123456>] scene_init+0x49/0xff0 [crash]",
            "[c000000003a1bc90] [c00800000a1b0040] .scene_init+0x49/0xff0 [crash]",
            " <IRQ>  [<ffffffffc0123456>] scene_init.isra.3.part.0+0x49/0xff0 [crash]",
            " <TASK> scene_init+0x4/0x5 [crash]",
            " scene_init+0x49/0xff0 [crash] (P)",
            " [<000003ff80204b1a>] scene_init+0x49/0xff0 [crash] ",
        ];
        for text in same {
            assert_eq!(trace_line(text), TraceLine::Frame(frame("scene_init", Some("crash"))), "{text}");
        }
        for text in [
            " ? f+0x1/0x2",
            " [<ffffffff81000000>] ? f+0x1/0x2",
            "[c000000003a1bc90] [c0000000001b0040] f+0x1/0x2 (unreliable)",
        ] {
            assert_eq!(trace_line(text), TraceLine::Guess, "{text}");
        }
        for (text, ends) in [
            (" </IRQ>", true),
            (" <<EOE>>  <IRQ> [<ffffffff81000000>] f", true),
            (" <EOI> f", true),
            (" <IRQ>", false),
        ] {
            assert_eq!(ends_interrupt(text), ends, "{text}");
        }
        assert_eq!(trace_line(" <TASK>"), TraceLine::Other);
        assert_eq!(trace_line("RAX: 0000000000000000 RBX: ffff RCX: 00"), TraceLine::Other);
        assert_eq!(trace_line("Modules linked in: crash"), TraceLine::End);
        assert_eq!(trace_line("---[ end trace 0123 ]---"), TraceLine::End);
    }

    #[test]
    fn pointers_of_every_architecture() {
        let same = [
            "RIP: 0010:f.constprop.0+0x5/0xe4f",
            "RIP: 0010:[<ffffffff81234567>]  [<ffffffff81234567>] f+0x5/0x10",
            "RIP: f+0x5/0x10 RSP: ffffc90000013c50",
            "EIP: f+0x5/0x10",
            "pc : f+0x24/0x30",
            "PC is at f+0x24/0x30",
            "epc : f+0x24/0x30",
            "NIP [c0000000000a1234] f+0x24/0x30",
            "Krnl PSW : 0704c00180000000 000003ff80204b1a (f+0x24/0x30)",
        ];
        for text in same {
            assert_eq!(pointer(text), Some(TraceLine::Pointer(Some(frame("f", None)))), "{text}");
        }
        assert_eq!(pointer("RIP: 0033:0x7f0f66744d3a"), Some(TraceLine::User));
        assert_eq!(pointer("RIP: 0010:0x0"), Some(TraceLine::Pointer(None)));
        assert_eq!(pointer("lr : f+0x24/0x30"), None);
    }

    #[test]
    fn names_are_those_of_all_builds() {
        for (name, expected) in [
            ("do_one.constprop.0.isra.3", "do_one"),
            ("__x64_sys_openat", "sys_openat"),
            ("__arm64_sys_openat", "sys_openat"),
            ("SyS_openat", "sys_openat"),
            ("__do_sys_openat", "sys_openat"),
            ("__do_softirq", "__do_softirq"),
            ("__alloc_pages_noprof", "__alloc_pages"),
            ("_RNvNtCsd4RWBxwUiXL_4core9panicking9panic_fmt", "core::panicking::panic_fmt"),
        ] {
            assert_eq!(family(name), expected, "{name}");
        }
    }
}
