//! What the kernel says of a crash, on the handler's command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::units::Pid;

/// A process that dumps core: the specifiers of `kernel.core_pattern` (core(5)), in their order on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// `%P`: the process, in the initial PID namespace, in which the kernel starts the handler.
    pub pid: Pid,
    /// `%I`: the thread that crashed, in the same namespace.
    pub tid: Pid,
    /// `%u`.
    pub uid: u32,
    /// `%g`.
    pub gid: u32,
    /// `%s`.
    pub signal: u32,
    /// `%t`: seconds since the epoch.
    pub time: u64,
    /// `%c`: RLIMIT_CORE in bytes.
    pub limit: u64,
    /// `%h`.
    pub host: OsString,
    /// `%e`: at most 15 bytes, of which the process chooses any.
    pub comm: OsString,
}

/// The number of arguments that [`Crash::parse`] expects.
const COUNT: usize = 9;

impl Crash {
    /// Parses the arguments. Further ones are ignored, as of a newer pattern. Fails with one sentence.
    pub fn parse(arguments: &[OsString]) -> Result<Self, String> {
        let [pid, tid, uid, gid, signal, time, limit, host, comm, ..] = arguments else {
            let found = arguments.len();
            return Err(format!("expected {COUNT} arguments (%P %I %u %g %s %t %c %h %e), found {found}"));
        };
        Ok(Self {
            pid: id("%P", pid)?,
            tid: id("%I", tid)?,
            uid: number("%u", uid)?,
            gid: number("%g", gid)?,
            signal: number("%s", signal)?,
            time: number("%t", time)?,
            limit: number("%c", limit)?,
            host: host.clone(),
            comm: comm.clone(),
        })
    }

    /// The name of the signal; `SIG` and its number for one without a name.
    pub fn signal_name(&self) -> String {
        // Those whose default action is a core dump (signal(7)); a program can give any other its core by `kill -QUIT` only.
        let name = match self.signal as i32 {
            libc::SIGQUIT => "SIGQUIT",
            libc::SIGILL => "SIGILL",
            libc::SIGTRAP => "SIGTRAP",
            libc::SIGABRT => "SIGABRT",
            libc::SIGBUS => "SIGBUS",
            libc::SIGFPE => "SIGFPE",
            libc::SIGSEGV => "SIGSEGV",
            libc::SIGXCPU => "SIGXCPU",
            libc::SIGXFSZ => "SIGXFSZ",
            libc::SIGSYS => "SIGSYS",
            other => return format!("SIG{other}"),
        };
        name.into()
    }
}

fn number<T: std::str::FromStr>(what: &str, text: &OsStr) -> Result<T, String> {
    let parsed = text.to_str().and_then(|text| text.parse().ok());
    parsed
        .ok_or_else(|| format!("{what} is {:?}; expected a number", String::from_utf8_lossy(text.as_bytes())))
}

fn id(what: &str, text: &OsStr) -> Result<Pid, String> {
    number(what, text).and_then(|id: Pid| match id {
        1.. => Ok(id),
        _ => Err(format!("{what} is {id}; expected the ID of a process")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arguments(text: &[&str]) -> Vec<OsString> {
        text.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_kernels_arguments_are_parsed() {
        let text = ["7", "9", "1000", "100", "11", "1764172495", "18446744073709551615", "host", "-my app"];
        let crash = Crash::parse(&arguments(&text)).unwrap();
        assert_eq!((crash.pid, crash.tid, crash.uid, crash.gid), (7, 9, 1000, 100));
        assert_eq!((crash.limit, crash.comm.to_str()), (u64::MAX, Some("-my app")));
        assert_eq!(crash.signal_name(), "SIGSEGV");
        for wrong in [&text[..8], &["0", "9", "0", "0", "11", "1", "0", "h", "c"]] {
            assert!(Crash::parse(&arguments(wrong)).is_err(), "{wrong:?}");
        }
        let why = Crash::parse(&arguments(&["7", "9", "0", "0", "%s", "1", "0", "h", "c"])).unwrap_err();
        assert_eq!(why, r#"%s is "%s"; expected a number"#);
    }

    proptest! {
        #[test]
        fn any_arguments_are_no_reason_to_panic(text in proptest::collection::vec("\\PC{0,20}", 0..12)) {
            let _ = Crash::parse(&text.iter().map(OsString::from).collect::<Vec<_>>());
        }
    }
}
