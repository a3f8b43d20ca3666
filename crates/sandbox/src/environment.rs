//! The environment holds secrets: credentials of object stores, tokens of build systems.

use std::ffi::{CStr, c_char};

/// What programs may learn of the terminal, the language and the time zone; settings of Rust's runtime; where temporary files go.
const KEPT: [&str; 14] = [
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "LANG",
    "LANGUAGE",
    "LINES",
    "NO_COLOR",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "TERM",
    "TMPDIR",
    "TZ",
    "TZDIR",
];

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Removes all variables but those in [`KEPT`] and `LC_*`, and overwrites their text: it is on the initial stack, which
/// `/proc/self/environ` shows and a program that removes a variable leaves as it is.
pub(crate) fn scrub() {
    // SAFETY: the process has no other thread (the caller's promise), and nothing holds a pointer into the environment: the
    // standard library copies what it returns. The list ends with a null pointer, and its strings with a zero byte.
    unsafe {
        let mut from = environ;
        if from.is_null() {
            return;
        }
        let mut to = from;
        while !(*from).is_null() {
            let text = *from;
            let length = CStr::from_ptr(text).to_bytes().len();
            if is_kept(CStr::from_ptr(text).to_bytes()) {
                *to = text;
                to = to.add(1);
            } else {
                for at in 0..length {
                    text.add(at).write_volatile(0);
                }
            }
            from = from.add(1);
        }
        *to = std::ptr::null_mut();
    }
}

fn is_kept(variable: &[u8]) -> bool {
    let name = variable.split(|byte| *byte == b'=').next().unwrap_or_default();
    name.starts_with(b"LC_") || KEPT.iter().any(|kept| kept.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_whole() {
        for (variable, kept) in [
            ("TZ=Europe/Berlin", true),
            ("LC_ALL=C", true),
            ("TZX=1", false),
            ("T=1", false),
            ("AWS_SECRET_ACCESS_KEY=x", false),
            ("=TZ", false),
            ("", false),
        ] {
            assert_eq!(is_kept(variable.as_bytes()), kept, "{variable}");
        }
    }
}
