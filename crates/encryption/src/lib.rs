//! Files in [age](https://age-encryption.org/v1) format: encrypted to public keys while they are written, read at any offset with a
//! secret one.
//!
//! Contents are in chunks of 64 KiB, each encrypted and authenticated on its own with ChaCha20-Poly1305. So a reader decrypts the chunks
//! that it needs, several threads read at once, and of a file that breaks off all whole chunks are readable. The crate `age` reads such
//! files from one position, by one thread.

mod aead;
mod authentic;
mod chunks;
mod error;
mod header;
mod held;
mod identity;
mod random;
mod reader;
mod recipient;
mod ssh;
mod text;
mod wrap;
mod writer;

pub use authentic::Authentic;
pub use error::{EncryptionError, RecipientError};
pub use held::{MaybeEncrypted, Unlocking, decrypted, ends_in_header, hold, is_encrypted, is_locked};
pub use identity::Identity;
pub use reader::{Decrypted, MAGIC};
pub use recipient::{Recipient, Recipients};
pub use writer::{Encrypting, EncryptingWriter, encrypt};
