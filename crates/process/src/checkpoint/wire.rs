//! The protocol between CRIU and its image streamer, over a stream socket: short protobuf messages, each after its length,
//! and pipes.

use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::protobuf::{Value, field};

/// Maximum size of a message: a file name and a little.
const MAX: u32 = 4096;

/// Reads the name of the next file; none when CRIU has closed its end.
pub(crate) fn read_name(socket: &mut impl Read) -> io::Result<Option<String>> {
    let mut length = [0; 4];
    match socket.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > MAX {
        return Err(io::Error::other(format!("CRIU sent a message of {length} bytes")));
    }
    let mut message = vec![0; length as usize];
    socket.read_exact(&mut message)?;
    name(&message).map(Some).ok_or_else(|| io::Error::other("CRIU sent a message without a file name"))
}

/// Field 1 of a message, as text. CRIU's names have no directories in them.
fn name(message: &[u8]) -> Option<String> {
    let (1, Value::Bytes(name), _) = field(message)? else { return None };
    let name = String::from_utf8(name.to_vec()).ok()?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The message that says whether a file exists: field 1, a number.
pub(crate) fn exists(yes: bool) -> [u8; 6] {
    [2, 0, 0, 0, 1 << 3, u8::from(yes)]
}

/// Receives a pipe's end, which comes with one byte.
pub(crate) fn receive_pipe(socket: &UnixStream) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let mut byte = [0u8; 1];
    let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // Room for one descriptor, aligned as control messages are.
    let mut control = [0u64; 4];
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: everything the message points at is alive and as long as it says.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled in the control messages and their length.
    let descriptor = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        if first.is_null()
            || (*first).cmsg_type != libc::SCM_RIGHTS
            || (*first).cmsg_level != libc::SOL_SOCKET
        {
            None
        } else {
            Some(libc::CMSG_DATA(first).cast::<libc::c_int>().read_unaligned())
        }
    };
    let descriptor = descriptor.ok_or_else(|| io::Error::other("CRIU announced a pipe and sent none"))?;
    // SAFETY: it was just received and is owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_field_one() {
        assert_eq!(name(b"\x0a\x0bpages-1.img"), Some("pages-1.img".into()));
        assert_eq!(name(b"\x0a\x0cpages-1.img"), None);
        assert_eq!(name(b"\x0a\x03a/b"), None);
    }

    proptest! {
        #[test]
        fn any_message_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = name(&bytes);
        }
    }
}
