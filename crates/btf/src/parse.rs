//! The table of types: parsed lazily from the bytes that the kernel keeps.

use std::ops::Range;
use std::sync::Arc;

use crate::types::{Kind, Member, Type, TypeId};

/// Types of one table. Distribution kernels have 120,000.
const MAX_TYPES: usize = 4 << 20;
/// Anonymous members in each other. C code has three or four.
const DEEPEST: u32 = 16;
/// Typedefs and qualifiers in a row.
const LONGEST_CHAIN: u32 = 64;
/// Bytes of a name that count. Names of all types can be one long string.
const LONGEST_NAME: usize = 1024;
/// Bytes of the smallest header; 7.1 has 32.
const HEADER: usize = 24;

/// Why bytes are no BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The header is not one.
    #[error("the kernel's BTF has no valid header")]
    Header,
    /// A type contradicts the format.
    #[error("the kernel's BTF is damaged: type {0} passes the end of the types or has an unknown kind")]
    Type(u32),
}

/// Types of a kernel, or of a module whose types continue the kernel's.
#[derive(Debug, Default)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Where types and strings are in `bytes`.
    types: Range<usize>,
    strings: Range<usize>,
    /// Offset in the types of each type.
    offsets: Vec<u32>,
    /// Hash of the name and number of each named structure, union, enum and typedef, sorted.
    names: Vec<(u32, TypeId)>,
    enums: Vec<TypeId>,
    base: Option<Arc<Btf>>,
}

impl Btf {
    /// Parses a kernel's BTF.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        Self::parse_on(bytes, None)
    }

    /// Parses a module's BTF, whose types and strings continue those of `base`.
    pub fn parse_split(bytes: Vec<u8>, base: Arc<Self>) -> Result<Self, BtfError> {
        Self::parse_on(bytes, Some(base))
    }

    fn parse_on(bytes: Vec<u8>, base: Option<Arc<Self>>) -> Result<Self, BtfError> {
        let word = |at: usize| -> Result<usize, BtfError> {
            let word = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(BtfError::Header)?;
            Ok(u32::from_le_bytes(*word) as usize)
        };
        if !bytes.starts_with(&[0x9f, 0xeb, 1]) {
            return Err(BtfError::Header);
        }
        // 7.1 has a layout section, whose two words follow: the length tells.
        let header = word(4)?;
        let part = |offset: usize, len: usize| {
            let start = header.checked_add(offset)?;
            let part = start..start.checked_add(len)?;
            bytes.get(part.clone()).map(|_| part)
        };
        let types = part(word(8)?, word(12)?).ok_or(BtfError::Header)?;
        let strings = part(word(16)?, word(20)?).ok_or(BtfError::Header)?;
        if header < HEADER {
            return Err(BtfError::Header);
        }
        let mut btf = Self { bytes, types, strings, base, ..Self::default() };
        btf.index()?;
        Ok(btf)
    }

    fn types(&self) -> &[u8] {
        self.bytes.get(self.types.clone()).unwrap_or_default()
    }

    fn strings(&self) -> &[u8] {
        self.bytes.get(self.strings.clone()).unwrap_or_default()
    }

    fn index(&mut self) -> Result<(), BtfError> {
        let mut at = 0;
        let first = self.first_id();
        while at < self.types.len() {
            let id = first + self.offsets.len() as u32;
            let damaged = BtfError::Type(id);
            self.offsets.push(at as u32);
            let read = self.own(id).ok_or(damaged)?;
            at = read.trailing + read.kind.trailing_bytes(read.entries);
            if at > self.types.len() || self.offsets.len() > MAX_TYPES {
                return Err(damaged);
            }
            if matches!(read.kind, Kind::Enum | Kind::Enum64) {
                self.enums.push(id);
            }
            if matches!(read.kind, Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Typedef)
                && read.name != 0
            {
                self.names.push((hash(self.string(read.name)), id));
            }
        }
        self.names.sort_unstable();
        Ok(())
    }

    fn first_id(&self) -> TypeId {
        self.base.as_ref().map_or(1, |base| base.next_id())
    }

    fn next_id(&self) -> TypeId {
        self.first_id() + self.offsets.len() as u32
    }

    /// Returns the number of types.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns a type. There is none for `void`.
    pub fn get(&self, id: TypeId) -> Option<Type> {
        match &self.base {
            Some(base) if id < self.first_id() => base.get(id),
            _ => self.own(id),
        }
    }

    fn own(&self, id: TypeId) -> Option<Type> {
        let offset = *self.offsets.get(id.checked_sub(self.first_id())? as usize)? as usize;
        let word = |at: usize| {
            let word = self.types().get(offset + at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*word))
        };
        let info = word(4)?;
        Some(Type {
            id,
            kind: Kind::new(info >> 24 & 31)?,
            name: word(0)?,
            entries: (info & 0xffff) as usize,
            flag: info >> 31 == 1,
            size_or_type: word(8)?,
            trailing: offset + 12,
        })
    }

    fn word(&self, of: &Type, index: usize) -> Option<u32> {
        if let Some(base) = &self.base
            && of.id < self.first_id()
        {
            return base.word(of, index);
        }
        let word = self.types().get(of.trailing + 4 * index..)?.first_chunk()?;
        Some(u32::from_le_bytes(*word))
    }

    fn string(&self, offset: u32) -> &[u8] {
        let base = self.base.as_ref().map_or(0, |base| base.strings.len() as u32);
        match (&self.base, offset.checked_sub(base)) {
            (Some(base), None) => base.string(offset),
            (_, offset) => {
                let text = self.strings().get(offset.unwrap_or(0) as usize..).unwrap_or_default();
                let text = text.get(..LONGEST_NAME).unwrap_or(text);
                text.split(|byte| *byte == 0).next().unwrap_or_default()
            }
        }
    }

    /// Returns the name of a type; empty for one without.
    pub fn name(&self, of: &Type) -> String {
        String::from_utf8_lossy(self.string(of.name)).into_owned()
    }

    /// Returns the types of this name: structures, unions, enums and typedefs. A kernel can have several of one name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Type> + 'a {
        let base = self.base.as_ref().map(|base| base.with_hash(hash(name.as_bytes())));
        let ids = base.into_iter().flatten().chain(self.with_hash(hash(name.as_bytes())));
        ids.filter_map(|id| self.get(id)).filter(move |found| self.string(found.name) == name.as_bytes())
    }

    fn with_hash(&self, hash: u32) -> impl Iterator<Item = TypeId> {
        let start = self.names.partition_point(|(known, _)| *known < hash);
        let found = self.names.get(start..).unwrap_or_default();
        found.iter().take_while(move |(known, _)| *known == hash).map(|(_, id)| *id)
    }

    /// Returns the structure or union of this name; of several the first. Typedefs of one count.
    pub fn record(&self, name: &str) -> Option<TypeId> {
        let direct = self.named(name).find(|found| matches!(found.kind, Kind::Struct | Kind::Union));
        let found = direct.or_else(|| self.named(name).find(|found| found.kind == Kind::Typedef));
        found.map(|found| found.id)
    }

    /// Returns the function of this name. All types are looked at.
    pub fn function(&self, name: &str) -> Option<TypeId> {
        let own = (self.first_id()..self.next_id()).filter_map(|id| self.own(id));
        let mut functions = own.filter(|found| found.kind == Kind::Func);
        let found = functions.find(|found| self.string(found.name) == name.as_bytes()).map(|found| found.id);
        found.or_else(|| self.base.as_ref()?.function(name))
    }

    /// Follows typedefs and qualifiers, and finds the structure that is only declared where its pointer is.
    pub fn resolve(&self, id: TypeId) -> Option<Type> {
        let mut found = self.get(id)?;
        for _ in 0..LONGEST_CHAIN {
            if found.kind == Kind::Fwd {
                let name = self.name(&found);
                let is_record = |it: &Type| matches!(it.kind, Kind::Struct | Kind::Union);
                return self.named(&name).find(is_record).or(Some(found));
            }
            if !found.kind.is_transparent() {
                return Some(found);
            }
            found = self.get(found.size_or_type)?;
        }
        None
    }

    /// Returns what a pointer points to; 0 is `void`.
    pub fn pointee(&self, id: TypeId) -> Option<TypeId> {
        let pointer = self.resolve(id)?;
        (pointer.kind == Kind::Ptr).then_some(pointer.size_or_type)
    }

    /// Returns the type and number of the elements of an array.
    pub fn array(&self, id: TypeId) -> Option<(TypeId, u32)> {
        let array = self.resolve(id)?;
        (array.kind == Kind::Array).then(|| Some((self.word(&array, 0)?, self.word(&array, 2)?)))?
    }

    /// Returns the size of a type in bytes.
    pub fn size(&self, id: TypeId) -> Option<u64> {
        let mut count: u64 = 1;
        let mut id = id;
        for _ in 0..LONGEST_CHAIN {
            let found = self.resolve(id)?;
            match found.kind {
                Kind::Ptr => return count.checked_mul(8),
                Kind::Array => {
                    let (element, len) = self.array(id)?;
                    count = count.checked_mul(u64::from(len))?;
                    id = element;
                }
                Kind::Int | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Float => {
                    return count.checked_mul(u64::from(found.size_or_type));
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns whether an integer or enum is signed.
    pub fn is_signed(&self, found: &Type) -> bool {
        match found.kind {
            // Old encoders (5.10's) know that only of DW_ATE_signed, and not of DW_ATE_signed_char.
            Kind::Int => {
                self.word(found, 0).is_some_and(|encoding| encoding >> 24 & 1 == 1)
                    || (found.size_or_type == 1 && self.string(found.name) == b"signed char")
            }
            Kind::Enum | Kind::Enum64 => found.flag,
            _ => false,
        }
    }

    /// Returns the bits that an integer type itself says it has, for bit fields of old encodings.
    pub(crate) fn int_bits(&self, found: &Type) -> Option<(u32, u32)> {
        let encoding = self.word(found, 0)?;
        Some((encoding >> 16 & 0xff, encoding & 0xff))
    }

    /// Finds a member by its path from a structure: `se.sum_exec_runtime`, `nodes[3].count`. Members of anonymous
    /// structures and unions count as the outer structure's.
    pub fn member(&self, record: TypeId, path: &str) -> Option<Member> {
        let mut member = Member { bit_offset: 0, bits: None, type_id: record };
        for segment in path.split('.') {
            let (name, indices) = segment.split_once('[').unwrap_or((segment, ""));
            let inner = self.direct(member.type_id, name.as_bytes(), DEEPEST)?;
            member = Member { bit_offset: member.bit_offset.checked_add(inner.bit_offset)?, ..inner };
            for index in indices.split('[').filter(|index| !index.is_empty()) {
                let index: u64 = index.strip_suffix(']')?.parse().ok()?;
                let (element, _) = self.array(member.type_id)?;
                let step = index.checked_mul(self.size(element)?)?.checked_mul(8)?;
                member =
                    Member { bit_offset: member.bit_offset.checked_add(step)?, bits: None, type_id: element };
            }
        }
        Some(member)
    }

    fn direct(&self, record: TypeId, name: &[u8], depth: u32) -> Option<Member> {
        let record = self.resolve(record)?;
        if !matches!(record.kind, Kind::Struct | Kind::Union) {
            return None;
        }
        let member = |index: usize| {
            let offset = self.word(&record, 3 * index + 2)?;
            let (bit_offset, bits) = match record.flag {
                true => (offset & 0xff_ffff, Some(offset >> 24).filter(|bits| *bits > 0)),
                false => (offset, None),
            };
            let type_id = self.word(&record, 3 * index + 1)?;
            Some((self.word(&record, 3 * index)?, Member { bit_offset: bit_offset.into(), bits, type_id }))
        };
        for (label, found) in (0..record.entries).map_while(member) {
            if label != 0 && self.string(label) == name {
                return Some(found);
            }
        }
        let deeper = depth.checked_sub(1)?;
        for (label, outer) in (0..record.entries).map_while(member) {
            if label == 0
                && let Some(inner) = self.direct(outer.type_id, name, deeper)
            {
                return Some(Member { bit_offset: inner.bit_offset + outer.bit_offset, ..inner });
            }
        }
        None
    }

    /// Returns the value of an enumerator of any enum, such as `NR_FREE_PAGES`.
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        let (found, at) = self.enumeration(name)?;
        self.enumerators(&found).nth(at).map(|(_, value)| value)
    }

    /// Returns the names and values of the enum that has the enumerator `name`.
    pub fn enum_with(&self, name: &str) -> Vec<(String, i64)> {
        let Some((found, _)) = self.enumeration(name) else { return Vec::new() };
        let text = |offset| String::from_utf8_lossy(self.string(offset)).into_owned();
        self.enumerators(&found).map(|(label, value)| (text(label), value)).collect()
    }

    fn enumeration(&self, name: &str) -> Option<(Type, usize)> {
        let found = self.enums.iter().filter_map(|id| self.own(*id)).find_map(|found| {
            let at = self.enumerators(&found).position(|(label, _)| self.string(label) == name.as_bytes())?;
            Some((found, at))
        });
        found.or_else(|| self.base.as_ref()?.enumeration(name))
    }

    fn enumerators(&self, found: &Type) -> impl Iterator<Item = (u32, i64)> {
        let found = *found;
        let entry = move |index: usize| match found.kind {
            Kind::Enum64 => {
                let low = u64::from(self.word(&found, 3 * index + 1)?);
                let high = u64::from(self.word(&found, 3 * index + 2)?);
                Some((self.word(&found, 3 * index)?, (high << 32 | low) as i64))
            }
            _ => {
                let value = self.word(&found, 2 * index + 1)?;
                let value = if found.flag { i64::from(value as i32) } else { i64::from(value) };
                Some((self.word(&found, 2 * index)?, value))
            }
        };
        (0..found.entries).map_while(entry)
    }
}

/// FNV-1a.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
