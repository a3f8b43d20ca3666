//! Files that ext4 encrypts (fscrypt), on the disk of the page cache's class.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;

use super::{Wiped, add_key};
use crate::Result;
use crate::system::check;
use lab_guest::secrets::Secret;

/// Where the disk is mounted.
const DISK: &str = "/cache";
/// `FS_IOC_SET_ENCRYPTION_POLICY` and `FS_IOC_ADD_ENCRYPTION_KEY` (include/uapi/linux/fscrypt.h).
const SET_POLICY: libc::c_ulong = 0x800c_6613;
const ADD_MASTER_KEY: libc::c_ulong = 0xc050_6617;
/// Contents by AES-256 in XTS mode, names by AES-256 in CTS mode, padded to 32 bytes.
const MODES: [u8; 3] = [1, 4, 3];
/// What names the key of a policy of version 1.
const DESCRIPTOR: [u8; 8] = *b"\x5c\xe9\xe5\x5c\xe9\xe5\x5c\xe9";

/// Makes one file by a key of the file system, and one by a key of a keyring. They stay open.
pub fn make() -> Result<[File; 2]> {
    Ok([by_file_system()?, by_keyring()?])
}

fn by_file_system() -> Result<File> {
    let key = Wiped::secret(Secret::FileSystem);
    // struct fscrypt_add_key_arg: FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER, room for the identifier, the size, and the key behind it.
    let mut argument = Wiped::with_room(256);
    argument.0.extend(2_u32.to_le_bytes());
    argument.0.resize(40, 0);
    argument.0.extend((key.0.len() as u32).to_le_bytes());
    argument.0.resize(80, 0);
    argument.0.extend(&key.0);
    ioctl(&open(DISK)?, ADD_MASTER_KEY, &mut argument.0, "adding a master key")?;
    // struct fscrypt_policy_v2: version, modes and flags, four reserved bytes, the identifier that the kernel made.
    let mut policy = vec![2];
    policy.extend(MODES);
    policy.extend([0; 4]);
    policy.extend(argument.0.get(8..24).unwrap_or_default());
    file("by-file-system", policy)
}

fn by_keyring() -> Result<File> {
    let key = Wiped::secret(Secret::File);
    // struct fscrypt_key: mode, key, size.
    let mut payload = Wiped::with_room(128);
    payload.0.extend(0_u32.to_le_bytes());
    payload.0.extend(&key.0);
    payload.0.extend((key.0.len() as u32).to_le_bytes());
    add_key(c"logon", c"fscrypt:5ce9e55ce9e55ce9", &payload.0)?;
    // struct fscrypt_policy_v1.
    let mut policy = vec![0];
    policy.extend(MODES);
    policy.extend(DESCRIPTOR);
    file("by-keyring", policy)
}

/// Makes a directory with a policy, and a file in it.
fn file(name: &str, mut policy: Vec<u8>) -> Result<File> {
    let directory = format!("{DISK}/{name}");
    let failed = |e: std::io::Error| format!("{directory}: {e}");
    fs::create_dir(&directory).map_err(failed)?;
    ioctl(&open(&directory)?, SET_POLICY, &mut policy, "setting a policy of encryption")?;
    let mut file = File::create(format!("{directory}/file")).map_err(failed)?;
    file.write_all(&[7; 4096]).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(file)
}

fn open(path: &str) -> Result<File> {
    File::open(path).map_err(|e| format!("{path}: {e}"))
}

/// `argument` is at least as long as the structure of the request.
fn ioctl(file: &File, request: libc::c_ulong, argument: &mut [u8], what: &str) -> Result<()> {
    // SAFETY: an open file, and a buffer of the structure that the request reads and writes.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument.as_mut_ptr()) };
    check(result.into(), what).map(drop)
}
