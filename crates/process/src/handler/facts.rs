//! What /proc says of a process that dumps core: read before its pipe, since it is gone after that.

use std::fs;
use std::os::unix::ffi::OsStringExt;

use super::crash::Crash;
use super::journal::Entry;
use crate::procfs;

/// Maximum bytes of a field: what a datagram has room for, all together.
const MAX_FIELD: usize = 16 << 10;

pub(super) struct Facts {
    /// The path of the executable; empty if it is unknown.
    pub(super) executable: Vec<u8>,
    /// Other fields of the journal entry.
    fields: Vec<(&'static str, Vec<u8>)>,
}

impl Facts {
    pub(super) fn read(crash: &Crash) -> Self {
        let link = |name: &str| {
            let target = fs::read_link(procfs::path(crash.pid, name)).ok();
            target.map(|path| path.into_os_string().into_vec()).unwrap_or_default()
        };
        let file = |name: &str| {
            let mut bytes = procfs::read(crash.pid, name).unwrap_or_default();
            bytes.truncate(MAX_FIELD);
            bytes.truncate(bytes.trim_ascii_end().len());
            bytes
        };
        let executable = link("exe");
        let cgroup = file("cgroup");
        let mut fields = vec![
            ("COREDUMP_CMDLINE", command_line(file("cmdline"))),
            ("COREDUMP_CWD", link("cwd")),
            ("COREDUMP_ROOT", link("root")),
            ("COREDUMP_PROC_STATUS", file("status")),
            ("COREDUMP_PROC_LIMITS", file("limits")),
        ];
        fields.extend(Cgroup::parse(&String::from_utf8_lossy(&cgroup)).fields());
        fields.push(("COREDUMP_PROC_CGROUP", cgroup));
        Self { executable, fields }
    }

    /// Adds them to an entry.
    pub(super) fn add(self, entry: &mut Entry) {
        entry.field("COREDUMP_EXE", &self.executable);
        for (name, value) in self.fields {
            entry.field(name, &value);
        }
    }
}

/// The arguments, with spaces between them.
fn command_line(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    bytes
}

/// What the names of control groups say of units, in systemd's scheme
/// (docs/CONTROL_GROUP_INTERFACE.md of systemd; `system.slice/NAME.service`, `user.slice/user-UID.slice/user@UID.service/…`).
#[derive(Debug, Default, PartialEq, Eq)]
struct Cgroup {
    path: String,
    unit: Option<String>,
    user_unit: Option<String>,
    slice: Option<String>,
    owner: Option<String>,
    session: Option<String>,
}

impl Cgroup {
    /// Parses `/proc/PID/cgroup`.
    fn parse(text: &str) -> Self {
        let of = |start: &str| text.lines().find_map(|line| line.split_once(start).map(|(_, path)| path));
        let Some(path) = of("0::").or_else(|| of(":name=systemd:")) else { return Self::default() };
        let mut this = Self { path: path.to_owned(), ..Self::default() };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let is_unit = [".service", ".scope"].iter().any(|kind| part.ends_with(kind));
            if part.ends_with(".slice") && this.unit.is_none() {
                this.slice = Some(part.to_owned());
                let owner = part.strip_prefix("user-").and_then(|rest| rest.strip_suffix(".slice"));
                this.owner = owner.map(str::to_owned).or(this.owner);
            } else if is_unit && this.unit.is_none() {
                let session = part.strip_prefix("session-").and_then(|rest| rest.strip_suffix(".scope"));
                this.session = session.map(str::to_owned);
                this.unit = Some(part.to_owned());
            } else if is_unit && this.user_unit.is_none() {
                let by_user = this.unit.as_ref().is_some_and(|unit| unit.starts_with("user@"));
                this.user_unit = by_user.then(|| part.to_owned());
            }
        }
        this
    }

    fn fields(self) -> Vec<(&'static str, Vec<u8>)> {
        let fields = [
            ("COREDUMP_CGROUP", Some(self.path)),
            ("COREDUMP_UNIT", self.unit),
            ("COREDUMP_USER_UNIT", self.user_unit),
            ("COREDUMP_SLICE", self.slice),
            ("COREDUMP_OWNER_UID", self.owner),
            ("COREDUMP_SESSION", self.session),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?.into_bytes()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_found_in_the_path() {
        let some = |text: &str| Some(text.to_owned());
        let found = Cgroup::parse("0::/system.slice/nginx.service\n");
        assert_eq!((found.unit, found.slice), (some("nginx.service"), some("system.slice")));
        let found = Cgroup::parse("0::/user.slice/user-1000.slice/user@1000.service/app.slice/my.service\n");
        assert_eq!(found.unit, some("user@1000.service"));
        assert_eq!((found.user_unit, found.owner), (some("my.service"), some("1000")));
        assert_eq!(found.slice, some("user-1000.slice"));
        let found = Cgroup::parse("1:name=systemd:/user.slice/user-7.slice/session-3.scope\n");
        assert_eq!((found.unit, found.session), (some("session-3.scope"), some("3")));
        let found = Cgroup::parse("0::/system.slice/docker.service/a.scope\n");
        assert_eq!((found.unit, found.user_unit), (some("docker.service"), None));
        assert_eq!(Cgroup::parse("12:cpu:/a\n"), Cgroup::default());
    }

    #[test]
    fn arguments_are_separated_by_spaces() {
        assert_eq!(command_line(b"a\0b c\0\0".to_vec()), b"a b c");
    }

    proptest! {
        #[test]
        fn any_text_is_no_reason_to_panic(text in "(?s)(0::)?.{0,80}") {
            let _ = Cgroup::parse(&text).fields();
        }
    }
}
