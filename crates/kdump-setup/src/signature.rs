//! Whether a kernel's file is signed: kernels for UEFI are PE files (`Documentation/arch/x86/boot.rst`).

/// Bytes that have all headers.
pub(crate) const HEAD: u64 = 4096;
/// Entry of the attribute certificates in a PE file's data directories.
const CERTIFICATES: usize = 4;

/// Returns whether the PE file that starts with `head` has a signature; `None` if it is no PE file, such as a compressed one.
pub(crate) fn is_signed(head: &[u8]) -> Option<bool> {
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = head.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    };
    if !head.starts_with(b"MZ") {
        return None;
    }
    let start = usize::try_from(number(0x3c, 4)?).ok()?;
    let optional = start.checked_add(24)?;
    // PE32+ has wider fields than PE32.
    let directories = match (head.get(start..start.checked_add(4)?)?, number(optional, 2)?) {
        (b"PE\0\0", 0x20b) => optional.checked_add(112)?,
        (b"PE\0\0", 0x10b) => optional.checked_add(96)?,
        _ => return None,
    };
    let count = usize::try_from(number(directories.checked_sub(4)?, 4)?).ok()?;
    if count <= CERTIFICATES {
        return Some(false);
    }
    let size = number(directories.checked_add(CERTIFICATES * 8 + 4)?, 4)?;
    Some(size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_header_is_taken_for_a_signature() {
        assert_eq!(is_signed(b"\x1f\x8b"), None);
        assert_eq!(is_signed(b"MZ"), None);
        let mut head = vec![0; 512];
        head[..2].copy_from_slice(b"MZ");
        head[0x3c] = 0x40;
        assert_eq!(is_signed(&head), None);
        head[0x40..0x44].copy_from_slice(b"PE\0\0");
        head[0x58..0x5a].copy_from_slice(&0x20b_u16.to_le_bytes());
        head[0x58 + 108] = 16;
        assert_eq!(is_signed(&head), Some(false));
        head[0x58 + 112 + 36] = 8;
        assert_eq!(is_signed(&head), Some(true));
        head[0x3c..0x40].fill(0xff);
        assert_eq!(is_signed(&head), None);
    }
}
