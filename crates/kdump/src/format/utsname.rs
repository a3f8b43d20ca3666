use super::NewUtsname;

/// `uname` of the crashed machine, as text. Fields are truncated to 64 bytes when written; bytes that are not UTF-8
/// become replacement characters when read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UtsName {
    /// "Linux".
    pub sysname: String,
    /// Host name.
    pub nodename: String,
    /// Kernel release.
    pub release: String,
    /// Build number, options and date.
    pub version: String,
    /// "x86_64".
    pub machine: String,
    /// NIS domain.
    pub domainname: String,
}

impl UtsName {
    /// Describes an x86_64 Linux machine of which only the kernel release is known.
    pub fn x86_64(release: &str) -> Self {
        Self {
            sysname: "Linux".into(),
            release: release.into(),
            machine: "x86_64".into(),
            ..Default::default()
        }
    }

    /// Decodes the 390 bytes of a kernel's `struct new_utsname` (`include/uapi/linux/utsname.h`): the contents of
    /// `init_uts_ns.name`, and of a dump's header.
    pub fn decode(bytes: &[u8; size_of::<NewUtsname>()]) -> Self {
        let raw: &NewUtsname = zerocopy::transmute_ref!(bytes);
        let text = |field: &[u8]| {
            let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).into_owned()
        };
        Self {
            sysname: text(&raw.sysname),
            nodename: text(&raw.nodename),
            release: text(&raw.release),
            version: text(&raw.version),
            machine: text(&raw.machine),
            domainname: text(&raw.domainname),
        }
    }
}
