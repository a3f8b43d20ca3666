//! The names of the crashed machine and its kernel, from `init_uts_ns`.

use pagehaul_elfcore::notes;

/// What `uname` says of the crashed machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UtsNames {
    /// Name of the host; `(none)` if it has none, `None` if it is erased.
    pub host: Option<String>,
    /// `uname -v`.
    pub version: Option<String>,
}

impl UtsNames {
    /// Reads `struct new_utsname` of a kernel of this release. `notes` are those of its dump, which say what is erased.
    ///
    /// # Errors
    /// Fails if it has another release: VMCOREINFO has it, too, so these bytes are not `init_uts_ns`.
    pub fn new(bytes: &[u8; 390], release: &str, notes: &[u8]) -> Result<Self, &'static str> {
        if field(bytes, 2).as_deref() != Some(release) {
            return Err("init_uts_ns is overwritten");
        }
        let host = field(bytes, 1).filter(|_| !notes::has_erased(notes, notes::HOST));
        Ok(Self { host, version: field(bytes, 3) })
    }
}

fn field(names: &[u8; 390], at: usize) -> Option<String> {
    let bytes = names.get(at * 65..(at + 1) * 65)?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
}
