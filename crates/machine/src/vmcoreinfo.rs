//! VMCOREINFO: what a kernel says of its own layout, in a note of its crash dump (`kernel/vmcore_info.c`, before 6.9
//! `kernel/crash_core.c`, before 4.13 `kernel/kexec_core.c`).

use std::collections::BTreeMap;

/// What VMCOREINFO lacks, or contradicts.
#[derive(Debug, thiserror::Error)]
pub enum InfoError {
    /// It lacks a key.
    #[error("VMCOREINFO has no {key}, needed for {purpose}: {advice}")]
    MissingKey {
        /// The key as it stands in VMCOREINFO, such as `SIZE(page)`.
        key: &'static str,
        /// What it is needed for.
        purpose: &'static str,
        /// What the user can do.
        advice: &'static str,
    },
    /// A key has an impossible value.
    #[error(
        "VMCOREINFO says {key}={value}, but {expected}: the notes are damaged, or the kernel is unknown to this version"
    )]
    BadValue {
        /// The key as it stands in VMCOREINFO.
        key: String,
        /// The value as it stands there.
        value: String,
        /// The expected value.
        expected: &'static str,
    },
    /// The machine or memory model is not supported.
    #[error("{0}")]
    Unsupported(String),
}

/// The lines `KEY=value` of VMCOREINFO. From any bytes: what is not such a line is passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmcoreInfo {
    lines: BTreeMap<String, String>,
}

impl VmcoreInfo {
    /// Takes the lines out of `text`. Where a key stands twice, the first counts.
    pub fn parse(text: &[u8]) -> Self {
        let mut lines = BTreeMap::new();
        // Zeros end a line too: hypervisors copy the note with its padding.
        for line in text.split(|&byte| byte == b'\n' || byte == 0) {
            let line = String::from_utf8_lossy(line);
            if let Some((key, value)) = line.split_once('=') {
                lines.entry(key.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
            }
        }
        Self { lines }
    }

    /// The value of a line, such as `get("OSRELEASE")`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.lines.get(key).map(String::as_str)
    }

    /// Every line, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lines.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// `SYMBOL(name)`: a virtual address, in hexadecimal, KASLR's shift included.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        hexadecimal(self.get(&format!("SYMBOL({name})"))?)
    }

    /// `SIZE(name)`: bytes.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.unsigned(&format!("SIZE({name})"))
    }

    /// `OFFSET(name)`: bytes from the start of the structure, as in `offset("page.flags")`.
    pub fn offset(&self, name: &str) -> Option<u64> {
        self.unsigned(&format!("OFFSET({name})"))
    }

    /// `LENGTH(name)`: elements.
    pub fn length(&self, name: &str) -> Option<u64> {
        self.unsigned(&format!("LENGTH({name})"))
    }

    /// `NUMBER(name)`: any number; addresses print as negative ones or in hexadecimal, and come out the same.
    pub fn number(&self, name: &str) -> Option<i64> {
        integer(self.get(&format!("NUMBER({name})"))?)
    }

    /// A line in hexadecimal without brackets, such as `KERNELOFFSET`.
    pub fn hex(&self, key: &str) -> Option<u64> {
        hexadecimal(self.get(key)?)
    }

    /// A line in decimal without brackets, such as `PAGESIZE` or `CRASHTIME`.
    pub fn unsigned(&self, key: &str) -> Option<u64> {
        u64::try_from(integer(self.get(key)?)?).ok()
    }

    /// The value of a key that has to be there.
    pub fn required<T>(
        &self,
        value: Option<T>,
        key: &'static str,
        purpose: &'static str,
    ) -> Result<T, InfoError> {
        if let Some(value) = value {
            return Ok(value);
        }
        Err(match self.get(key) {
            Some(text) => InfoError::BadValue {
                key: key.to_owned(),
                value: text.to_owned(),
                expected: "that is not a number in range",
            },
            None => InfoError::MissingKey { key, purpose, advice: ADVICE },
        })
    }
}

const ADVICE: &str = "capture at level 0 or 1, which need no struct page";

/// Decimal first, then hexadecimal with or without 0x: kernels print NUMBER both ways (`%ld` since the macros exist,
/// `0x%lx` for VMALLOC_START since 6.9).
fn integer(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(number);
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(number as i64);
    }
    hexadecimal(text).map(|number| number as i64)
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    // from_str_radix takes a sign.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_each_kind() {
        let info = VmcoreInfo::parse(
            b"OSRELEASE=6.1.0-53-cloud-amd64\nPAGESIZE=4096\nSYMBOL(_stext)=ffffffffb0800000\nSIZE(page)=64\n\
              OFFSET(page.flags)=0\nLENGTH(mem_section)=2048\nNUMBER(PAGE_BUDDY_MAPCOUNT_VALUE)=-129\n\
              NUMBER(phys_base)=-16777216\nNUMBER(VMALLOC_START)=0xffffc90000000000\nKERNELOFFSET=2f800000\n\
              NUMBER(PAGE_SLAB_MAPCOUNT_VALUE)=4110417920\nCRASHTIME=1753868521\n\0\0\0",
        );
        assert_eq!(info.get("OSRELEASE"), Some("6.1.0-53-cloud-amd64"));
        assert_eq!(info.symbol("_stext"), Some(0xffff_ffff_b080_0000));
        assert_eq!(info.size("page"), Some(64));
        assert_eq!(info.offset("page.flags"), Some(0));
        assert_eq!(info.length("mem_section"), Some(2048));
        assert_eq!(info.number("PAGE_BUDDY_MAPCOUNT_VALUE"), Some(-129));
        assert_eq!(info.number("phys_base"), Some(-16_777_216));
        assert_eq!(info.number("VMALLOC_START"), Some(0xffff_c900_0000_0000_u64 as i64));
        assert_eq!(info.number("PAGE_SLAB_MAPCOUNT_VALUE"), Some(0xf500_0000));
        assert_eq!(info.hex("KERNELOFFSET"), Some(0x2f80_0000));
        assert_eq!(info.unsigned("CRASHTIME"), Some(1_753_868_521));
        assert_eq!(info.size("zone"), None);
    }

    #[test]
    fn a_missing_key_is_named() {
        let info = VmcoreInfo::parse(b"SIZE(page)=big\n");
        let error = info.required(info.size("page"), "SIZE(page)", "struct pages").unwrap_err();
        assert!(error.to_string().contains("SIZE(page)=big"), "{error}");
        let error = info.required(info.size("zone"), "SIZE(zone)", "zones").unwrap_err();
        assert!(error.to_string().contains("no SIZE(zone), needed for zones"), "{error}");
    }
}
