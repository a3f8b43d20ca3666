//! Damage that the file of a kernel shows before it is loaded.

use std::fs::File;
use std::io::Read;

/// Bytes that have the boot sector of a bzImage and its setup header (`Documentation/arch/x86/boot.rst`).
const HEAD: u64 = 1024;

/// Why the file is not a whole kernel. Only what is sure: formats that are not known have no fault.
pub(crate) fn fault(mut file: &File) -> Option<String> {
    let length = file.metadata().ok()?.len();
    let mut head = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut head).ok()?;
    if head.is_empty() {
        return Some("it is empty".to_owned());
    }
    if head.iter().all(|byte| *byte == 0) {
        return Some("it begins with zeros".to_owned());
    }
    let wanted = bzimage_length(&head)?;
    (length < wanted).then(|| format!("it has {length} bytes of {wanted}"))
}

/// Whether the file begins as kernels do: bzImage, arm64 and riscv Image (`Documentation/arch`), EFI, ELF, gzip. Others are possible.
pub(crate) fn is_known(mut file: &File) -> bool {
    let mut head = Vec::new();
    let read = file.by_ref().take(HEAD).read_to_end(&mut head);
    let has = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let magics: [(usize, &[u8]); 6] = [
        (0x202, b"HdrS"),
        (0, b"MZ"),
        (0, b"\x7fELF"),
        (0, b"\x1f\x8b"),
        (0x38, b"ARM\x64"),
        (0x38, b"RSC\x05"),
    ];
    read.is_ok() && magics.iter().any(|(at, magic)| has(*at, magic))
}

/// The length that a bzImage has by its setup header, without what may follow, such as a signature.
fn bzimage_length(head: &[u8]) -> Option<u64> {
    if head.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    // 0 stands for 4.
    let sectors = match head[0x1f1] {
        0 => 4,
        sectors => u64::from(sectors),
    };
    // In units of 16 bytes.
    let size = u32::from_le_bytes(*head.get(0x1f4..)?.first_chunk()?);
    Some((sectors + 1) * 512 + u64::from(size) * 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    fn of(bytes: &[u8]) -> Option<String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        fault(&file)
    }

    #[test]
    fn a_kernel_that_is_not_whole_is_known_by_its_header() {
        let mut kernel = vec![0; 512 * 3 + 16 * 100];
        kernel[0x202..0x206].copy_from_slice(b"HdrS");
        kernel[0x1f1] = 2;
        kernel[0x1f4] = 100;
        assert_eq!(of(&kernel), None);
        kernel.extend(b"signature");
        assert_eq!(of(&kernel), None);
        assert_eq!(of(&kernel[..3000]).as_deref(), Some("it has 3000 bytes of 3136"));
        kernel[..1024].fill(0);
        assert_eq!(of(&kernel).as_deref(), Some("it begins with zeros"));
        assert_eq!(of(b"").as_deref(), Some("it is empty"));
        assert_eq!(of(b"\x1f\x8b compressed"), None);
    }

    #[test]
    fn a_kernel_is_known_by_its_first_bytes() {
        let is_known = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.rewind().unwrap();
            super::is_known(&file)
        };
        let mut kernel = vec![1; 0x206];
        assert!(!is_known(&kernel) && !is_known(b"") && !is_known(b"text"));
        kernel[0x202..].copy_from_slice(b"HdrS");
        assert!(is_known(&kernel) && is_known(b"MZ") && is_known(b"\x7fELF\x02"));
    }
}
