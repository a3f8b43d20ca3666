//! Crypto transforms (`struct crypto_tfm`): their contexts have the key, and what was made of it.
//!
//! A context is the cipher's own, and no type tells what is in it. A transform that is made of others (XTS of AES, GCM, what lets a
//! vector unit be used) points to them from its context. So each word of a context is followed: what it points to is a transform if its
//! algorithm is one of those that the kernel lists.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Space};
use pagehaul_inspect::Machine;
use pagehaul_kernel::ReadVirtual;

use crate::collect::Collector;

/// Bytes of a context. Those of generic ciphers with tables have up to 64 KiB (gf128mul).
const MAX_CONTEXT: u64 = 1 << 17;
/// Transforms in each other.
const DEEPEST: usize = 16;
/// Transforms of all owners: a TLS socket has two.
const MAX_TRANSFORMS: usize = 1 << 20;
/// Addresses of the kernel have this bit on each architecture.
const KERNEL: u64 = 1 << 63;
/// What a transform begins with, by the frontend; 6.7 added `lskcipher`, whose transform is the first member, as that of `cipher`.
const FRONTENDS: [&str; 5] =
    ["crypto_skcipher", "crypto_aead", "crypto_ahash", "crypto_shash", "crypto_akcipher"];

/// Finds transforms, each once.
pub(super) struct Transforms<'a> {
    space: &'a Space<'a>,
    memory: &'a dyn ReadVirtual,
    machine: &'a Machine<'a>,
    /// Addresses of the algorithms.
    algorithms: HashSet<u64>,
    /// Where the transform is in what pointers point to.
    starts: Vec<u64>,
    algorithm_at: u64,
    exit_at: u64,
    context_at: u64,
    /// `CRYPTO_MINALIGN`.
    alignment: u64,
    seen: HashSet<u64>,
}

impl<'a> Transforms<'a> {
    pub(super) fn new(machine: &'a Machine<'a>, out: &mut Collector<'_>) -> Result<Self, Fault> {
        let space = machine.space();
        let walk = machine.variable("crypto_alg_list", "list_head")?.list("crypto_alg", "cra_list")?;
        out.broken("the list of ciphers", walk.broken);
        let mut starts = vec![0];
        starts.extend(FRONTENDS.iter().filter_map(|record| space.offset_of(record, "base").ok()));
        starts.sort_unstable();
        starts.dedup();
        Ok(Self {
            space,
            memory: machine.memory(),
            machine,
            algorithms: walk.items.iter().map(|algorithm| algorithm.address()).collect(),
            starts,
            algorithm_at: space.offset_of("crypto_tfm", "__crt_alg")?,
            exit_at: space.offset_of("crypto_tfm", "exit")?,
            context_at: space.offset_of("crypto_tfm", "__crt_ctx")?,
            alignment: space.offset_of("crypto_skcipher", "base").unwrap_or(8).max(8),
            seen: HashSet::new(),
        })
    }

    /// Erases the context of the transform that a pointer of an owner points to. There has to be one.
    pub(super) fn erase(&mut self, what: &str, pointer: u64, out: &mut Collector<'_>) {
        if pointer == 0 {
            return;
        }
        match self.transform_at(pointer) {
            Some(transform) => self.erase_all(what, transform, out),
            None => out.gap(format!("{what} at {pointer:#x}: it is not the transform of a known cipher")),
        }
    }

    /// Returns the transform in what `pointer` points to.
    fn transform_at(&self, pointer: u64) -> Option<u64> {
        if pointer & KERNEL == 0 || !pointer.is_multiple_of(8) {
            return None;
        }
        let is_transform = |at: &u64| {
            let algorithm = self.memory.u64(at.wrapping_add(self.algorithm_at)).ok()?;
            let exit = self.memory.u64(at.wrapping_add(self.exit_at)).ok()?;
            let is_one =
                self.algorithms.contains(&algorithm) && (exit == 0 || self.machine.symbols().is_text(exit));
            is_one.then_some(())
        };
        self.starts.iter().map(|start| pointer.wrapping_add(*start)).find(|at| is_transform(at).is_some())
    }

    fn erase_all(&mut self, what: &str, transform: u64, out: &mut Collector<'_>) {
        let mut work = vec![(transform, 0)];
        while let Some((transform, depth)) = work.pop() {
            if self.seen.len() >= MAX_TRANSFORMS || depth > DEEPEST {
                return out.gap(format!("{what}: there are too many transforms"));
            }
            if !self.seen.insert(transform) {
                continue;
            }
            match self.context(transform) {
                Ok((at, words)) => {
                    out.erase(what, at, 8 * words.len() as u64);
                    let inner = words.iter().filter_map(|word| self.transform_at(*word));
                    work.extend(inner.map(|inner| (inner, depth + 1)));
                }
                Err(why) => out.gap(format!("{what} at {transform:#x}: {why}")),
            }
        }
    }

    /// Returns where the context of a transform is, and its words.
    fn context(&self, transform: u64) -> Result<(u64, Vec<u64>), Fault> {
        let object = self.space.object(transform, "crypto_tfm")?;
        let algorithm = object.get("__crt_alg")?.target()?;
        let at = transform.wrapping_add(self.context_at);
        // A frontend that lets another do all has a pointer to a transform of the same algorithm, and nothing else
        // (`crypto_ahash_extsize`; since 6.7 also `crypto_skcipher_extsize`).
        let other = self.memory.u64(at).ok().and_then(|word| self.transform_at(word));
        let of_other = other.map(|other| self.memory.u64(other.wrapping_add(self.algorithm_at)));
        let stands_in = of_other.and_then(Result::ok) == Some(algorithm.address());
        let size = match stands_in {
            true => 8,
            // `crypto_alg_extsize`: with room to align it.
            false => {
                let aligned = algorithm.number("cra_alignmask")? & !(self.alignment - 1);
                algorithm.number("cra_ctxsize")?.saturating_add(aligned)
            }
        };
        if size > MAX_CONTEXT {
            return Err(Fault::WrongKind(format!("the size of a context, {size}"), "a number of bytes"));
        }
        let bytes = self.memory.bytes(at, (size.next_multiple_of(8)) as usize)?;
        Ok((at, bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }
}
