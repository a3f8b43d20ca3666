//! Keys that the scenario `keys` gives to the kernel, and that its dumps are searched for.
//!
//! They are made from their numbers, so that neither the guest's program nor its initramfs has them.

/// A key, by who gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secret {
    /// A key of type `user`.
    User,
    /// A key of type `logon`.
    Logon,
    /// The key of an encrypted disk: AES-256 in XTS mode.
    Disk,
    /// The key of a TLS connection: AES-128 in GCM.
    Tls,
    /// The private key of a WireGuard device.
    WireGuardPrivate,
    /// The preshared key of a WireGuard peer.
    WireGuardPreshared,
    /// A private key of type `asymmetric`, in the form in which the kernel stores it. Its numbers are random, and no RSA key.
    Asymmetric,
    /// The master key of a file system, by which it encrypts a file (fscrypt, policies of version 2). The kernel does not keep it.
    FileSystem,
    /// The master key of another file, in a keyring (fscrypt, policies of version 1).
    File,
}

impl Secret {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::User,
        Self::Logon,
        Self::Disk,
        Self::Tls,
        Self::WireGuardPrivate,
        Self::WireGuardPreshared,
        Self::Asymmetric,
        Self::FileSystem,
        Self::File,
    ];

    /// Returns its number of bytes.
    pub fn len(self) -> usize {
        match self {
            Self::User => 48,
            Self::Logon | Self::Disk | Self::Asymmetric | Self::FileSystem | Self::File => 64,
            Self::Tls => 16,
            Self::WireGuardPrivate | Self::WireGuardPreshared => 32,
        }
    }

    /// Returns whether it has no bytes: none has.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Writes it to `out`, which has [`len`](Self::len) bytes.
    pub fn fill(self, out: &mut [u8]) {
        // splitmix64.
        let mut state = 0x5eed_0000_0000_0000 + self as u64;
        for chunk in out.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            chunk.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        if self == Self::WireGuardPrivate
            && let [first, .., last] = out
        {
            // As the kernel clamps it (RFC 7748).
            *first &= 0xf8;
            *last = *last & 0x7f | 0x40;
        }
    }
}
