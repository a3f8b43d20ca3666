//! Random numbers, which a capture kernel may lack at first.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

use crate::error::EncryptionError;

/// How long is waited. A reader that blocks makes the kernel gather randomness from the jitter of its clock (Linux 5.4,
/// 50ee7529ec45), which takes a second; earlier kernels wait for interrupts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns random bytes, once the kernel's generator is ready.
pub(crate) fn bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, EncryptionError> {
    let mut bytes = Zeroizing::new([0; N]);
    match getrandom(&mut bytes[..], GetRandomFlags::NONBLOCK) {
        // Requests of up to 256 bytes are never answered in part.
        Ok(_) => return Ok(bytes),
        Err(rustix::io::Errno::AGAIN) => {}
        Err(error) => return Err(EncryptionError::Random(error.into())),
    }
    let (ready, is_ready) = mpsc::channel();
    thread::Builder::new()
        .name("random".into())
        .spawn(move || {
            let mut bytes = Zeroizing::new([0; N]);
            let result = getrandom(&mut bytes[..], GetRandomFlags::empty()).map(|_| bytes);
            // Nobody waits any more if this fails.
            let _ = ready.send(result.map_err(io::Error::from));
        })
        .map_err(EncryptionError::Random)?;
    match is_ready.recv_timeout(PATIENCE) {
        Ok(result) => result.map_err(EncryptionError::Random),
        Err(_) => Err(EncryptionError::NoRandomness { seconds: PATIENCE.as_secs() }),
    }
}
