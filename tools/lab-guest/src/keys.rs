//! The scenario `keys`: gives keys to all that `pagehaul capture --erase keys` finds, and pages with patterns to owners that
//! `--keep-…` finds ([`patterns`]), and crashes.

mod encrypted_files;

use crate::patterns;
use crate::scenario::{self, device_mapper};
use crate::system::{check, disk, set};
use crate::{Result, notify_host};
use lab_guest::plan::{self, message};
use lab_guest::secrets::Secret;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{Ordering, compiler_fence};

/// `add_key`; libc lacks it for arm64 with musl.
const ADD_KEY: libc::c_long = if cfg!(target_arch = "x86_64") { 248 } else { 217 };
/// `KEY_SPEC_PROCESS_KEYRING`.
const PROCESS_KEYRING: libc::c_long = -2;
/// Sectors of the encrypted disk.
const SECTORS: u64 = 1 << 15;

pub fn crash() -> Result<()> {
    // Before there are keys, which forked processes would share.
    patterns::fill()?;
    add_keys()?;
    encrypt_disk()?;
    let connection = connect_with_tls()?;
    add_wireguard()?;
    let files = encrypted_files::make()?;
    notify_host(message::STEP, "keys are set");
    set("/proc/sysrq-trigger", "c")?;
    drop((connection, files));
    Ok(())
}

/// Bytes that are overwritten when they are not used any more, so that the process has no copy of a key.
struct Wiped(Vec<u8>);

impl Wiped {
    fn secret(secret: Secret) -> Self {
        let mut bytes = vec![0; secret.len()];
        secret.fill(&mut bytes);
        Self(bytes)
    }

    /// Room for what is appended: a vector that grows leaves copies.
    fn with_room(room: usize) -> Self {
        Self(Vec::with_capacity(room))
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        for byte in &mut self.0 {
            // SAFETY: the reference is valid and unique.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        compiler_fence(Ordering::SeqCst);
    }
}

fn add_keys() -> Result<()> {
    add_key(c"user", c"scene-user", &Wiped::secret(Secret::User).0)?;
    add_key(c"logon", c"scene:logon", &Wiped::secret(Secret::Logon).0)?;
    add_key(c"asymmetric", c"scene-asymmetric", &private_key().0)?;
    // Debian 11 has no keys of type `encrypted`.
    if let Err(why) = add_key(c"encrypted", c"scene-encrypted", b"new default user:scene-user 32\0") {
        notify_host(message::STEP, &why);
    }
    Ok(())
}

/// A private key in PKCS#8 (RFC 5958), which the kernel stores without a look at the key itself.
fn private_key() -> Wiped {
    let key = Wiped::secret(Secret::Asymmetric);
    // SEQUENCE of the version 0, a SEQUENCE of rsaEncryption and NULL, and the key.
    const HEAD: [u8; 18] = [2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1, 5, 0];
    let mut der = Wiped::with_room(128);
    let key_bytes = key.0.len() as u8;
    der.0.extend([0x30, HEAD.len() as u8 + 2 + key_bytes]);
    der.0.extend(HEAD);
    der.0.extend([4, key_bytes]);
    der.0.extend(&key.0);
    der
}

fn add_key(kind: &std::ffi::CStr, description: &std::ffi::CStr, payload: &[u8]) -> Result<()> {
    // SAFETY: two strings with a NUL and a buffer of the length that is passed.
    let result = unsafe {
        libc::syscall(
            ADD_KEY,
            kind.as_ptr(),
            description.as_ptr(),
            payload.as_ptr(),
            payload.len(),
            PROCESS_KEYRING,
        )
    };
    check(result, &format!("adding a key of type {kind:?}")).map(drop)
}

/// Makes an encrypted disk by a table, as old versions of cryptsetup do it, and reads from it.
fn encrypt_disk() -> Result<()> {
    let below = disk(plan::disk::VMCORE)?;
    // DM_SECURE_DATA_FLAG: the kernel overwrites its copy of the table.
    const SECURE: u32 = 1 << 15;
    let key = Wiped::secret(Secret::Disk);
    let mut table = Wiped::with_room(1024);
    // struct dm_target_spec: start, length, status, next, type.
    table.0.extend([0, SECTORS].iter().flat_map(|word: &u64| word.to_le_bytes()));
    table.0.extend([0; 8]);
    table.0.extend(b"crypt\0\0\0\0\0\0\0\0\0\0\0");
    table.0.extend(b"aes-xts-plain64 ");
    table.0.extend(
        key.0
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|digit| b"0123456789abcdef"[usize::from(digit)]),
    );
    table.0.extend(format!(" 0 {} 0\0", below.display()).as_bytes());
    table.0.resize(table.0.len().next_multiple_of(8), 0);
    let control = scenario::device_mapper_control()?;
    let path = format!("/dev/dm-{}", device_mapper(&control, 3, 0, &[])?);
    device_mapper(&control, 9, SECURE, &table.0)?;
    device_mapper(&control, 6, 0, &[])?;
    let mut sector = [0; 4096];
    let read = OpenOptions::new().read(true).open(&path).and_then(|mut file| file.read(&mut sector));
    read.map(drop).map_err(|e| format!("{path}: {e}"))
}

/// Returns both ends of a connection whose records the kernel encrypts and decrypts.
fn connect_with_tls() -> Result<(TcpStream, TcpStream)> {
    raise_loopback()?;
    let failed = |e: std::io::Error| format!("connecting to this machine: {e}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let mut sender = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let (mut receiver, _) = listener.accept().map_err(failed)?;
    let key = Wiped::secret(Secret::Tls);
    // struct tls12_crypto_info_aes_gcm_128: version, cipher, IV, key, salt, number of the record.
    let mut info = Wiped::with_room(64);
    info.0.extend([3, 3, 51, 0]);
    info.0.extend([1; 8]);
    info.0.extend(&key.0);
    info.0.extend([2; 4]);
    info.0.extend([0; 8]);
    const SOL_TLS: i32 = 282;
    const TCP_ULP: i32 = 31;
    for (stream, direction) in [(&sender, 1), (&receiver, 2)] {
        option(stream, libc::IPPROTO_TCP, TCP_ULP, b"tls")?;
        option(stream, SOL_TLS, direction, &info.0)?;
    }
    let mut answer = [0; 5];
    sender.write_all(b"scene").and_then(|()| receiver.read_exact(&mut answer)).map_err(failed)?;
    if answer != *b"scene" {
        return Err("what TLS in the kernel decrypts is not what was sent".into());
    }
    Ok((sender, receiver))
}

fn option(stream: &TcpStream, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: an open socket and a buffer of the length that is passed.
    let result = unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    check(result.into(), &format!("socket option {level}/{name}")).map(drop)
}

fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd> {
    // SAFETY: three numbers.
    let socket = check(unsafe { libc::socket(family, kind, protocol) }.into(), "making a socket")?;
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(socket as i32) })
}

/// Sets the flag IFF_UP of `lo`.
fn raise_loopback() -> Result<()> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // struct ifreq: the name, then flags.
    let mut request = [0_u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16] = libc::IFF_UP as u8;
    const SIOCSIFFLAGS: libc::c_ulong = 0x8914;
    // SAFETY: the buffer is as long as struct ifreq.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCSIFFLAGS as _, request.as_mut_ptr()) };
    check(result.into(), "raising lo").map(drop)
}

/// Adds a WireGuard device with a peer.
fn add_wireguard() -> Result<()> {
    const NEWLINK: u16 = 16;
    const REQUEST_ACK: u16 = 1 | 4;
    const CREATE_EXCLUSIVELY: u16 = 0x600;
    const NESTED: u16 = 1 << 15;
    let route = socket(libc::AF_NETLINK, libc::SOCK_RAW, 0)?;
    // struct ifinfomsg, IFLA_IFNAME, IFLA_LINKINFO with IFLA_INFO_KIND.
    let mut link = vec![0; 16];
    attribute(&mut link, 3, b"scene0\0");
    let mut kind = Vec::new();
    attribute(&mut kind, 1, b"wireguard\0");
    attribute(&mut link, 18 | NESTED, &kind);
    ask(&route, NEWLINK, REQUEST_ACK | CREATE_EXCLUSIVELY, &link)?;
    let generic = socket(libc::AF_NETLINK, libc::SOCK_RAW, 16)?;
    // GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME.
    let mut name = vec![3, 1, 0, 0];
    attribute(&mut name, 2, b"wireguard\0");
    let answer = ask(&generic, 0x10, 1, &name)?;
    let family = family(&answer).ok_or("the kernel names no family wireguard")?;
    // WG_CMD_SET_DEVICE: name, private key, peers with public and preshared key.
    let (private, preshared) =
        (Wiped::secret(Secret::WireGuardPrivate), Wiped::secret(Secret::WireGuardPreshared));
    let mut peer = Wiped::with_room(128);
    attribute(&mut peer.0, 1, &[9; 32]);
    attribute(&mut peer.0, 2, &preshared.0);
    let mut peers = Wiped::with_room(128);
    attribute(&mut peers.0, NESTED, &peer.0);
    let mut device = Wiped::with_room(256);
    device.0.extend([1, 1, 0, 0]);
    attribute(&mut device.0, 2, b"scene0\0");
    attribute(&mut device.0, 3, &private.0);
    attribute(&mut device.0, 8 | NESTED, &peers.0);
    ask(&generic, family, REQUEST_ACK, &device.0).map(drop)
}

/// Appends a netlink attribute.
fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend((value.len() as u16 + 4).to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns CTRL_ATTR_FAMILY_ID of an answer.
fn family(answer: &[u8]) -> Option<u16> {
    let mut at = 20;
    loop {
        let word = |at: usize| answer.get(at..at + 2).map(|word| u16::from_le_bytes([word[0], word[1]]));
        let (len, kind) = (word(at)?, word(at + 2)?);
        if kind == 1 {
            return word(at + 4);
        }
        at += usize::from(len.max(4)).next_multiple_of(4);
    }
}

/// Sends a netlink message and returns the answer.
fn ask(socket: &OwnedFd, kind: u16, flags: u16, body: &[u8]) -> Result<Vec<u8>> {
    let mut message = Wiped::with_room(16 + body.len());
    message.0.extend((16 + body.len() as u32).to_le_bytes());
    message.0.extend([kind.to_le_bytes(), flags.to_le_bytes()].concat());
    message.0.extend([0; 8]);
    message.0.extend(body);
    // Not closed: the socket is the caller's.
    // SAFETY: the descriptor is open as long as `socket` is.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(socket.as_raw_fd()) });
    let mut answer = vec![0; 8192];
    let failed = |e: std::io::Error| format!("netlink message {kind}: {e}");
    file.write_all(&message.0).map_err(failed)?;
    let len = file.read(&mut answer).map_err(failed)?;
    answer.truncate(len);
    // NLMSG_ERROR with a number other than 0.
    let word = |at: usize| {
        answer.get(at..at + 4).map_or(0, |word| i32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    };
    if word(4) & 0xffff == 2 && word(16) != 0 {
        return Err(failed(std::io::Error::from_raw_os_error(-word(16))));
    }
    Ok(answer)
}
