//! A typed address.

use crate::fault::Fault;
use crate::space::Space;
use crate::types::{Kind, TypeId};

/// Longest text that is read.
const LONGEST_TEXT: usize = 4096;

/// A value of the kernel: an address with a type. Nothing is read before it is asked for.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    space: &'a Space<'a>,
    address: u64,
    type_id: TypeId,
    /// First bit and width of a bit field, counted from `address`.
    bits: Option<(u32, u32)>,
}

impl<'a> Object<'a> {
    /// Creates an object of any type.
    pub fn new(space: &'a Space<'a>, address: u64, type_id: TypeId) -> Self {
        Self { space, address, type_id, bits: None }
    }

    /// Returns its address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns where it is.
    pub fn space(&self) -> &'a Space<'a> {
        self.space
    }

    /// Finds a member: `se.on_rq`, `signal->nr_threads`, `mm->rss_stat[0].count`. `->` reads a pointer.
    pub fn get(&self, path: &str) -> Result<Self, Fault> {
        let mut object = *self;
        // No name of C has a '-', and a search for one byte is faster: this runs for each member of each task.
        for (at, part) in path.split('-').enumerate() {
            if at > 0 {
                object = object.target()?;
            }
            object = object.member(part.strip_prefix('>').unwrap_or(part))?;
        }
        Ok(object)
    }

    fn member(&self, path: &str) -> Result<Self, Fault> {
        let member = self.space.member(self.type_id, path)?;
        let address = self.address.wrapping_add(member.bit_offset / 8);
        let bits = member.bits.map(|bits| ((member.bit_offset % 8) as u32, bits));
        Ok(Self { space: self.space, address, type_id: member.type_id, bits })
    }

    /// Returns the first of several members that exists: kernels rename them.
    pub fn any(&self, paths: &[&str]) -> Result<Self, Fault> {
        let mut missing = None;
        for path in paths {
            match self.get(path) {
                Err(fault @ Fault::NoField { .. }) => missing = Some(fault),
                found => return found,
            }
        }
        Err(missing.unwrap_or(Fault::NoType(String::new())))
    }

    /// Returns whether it has a member.
    pub fn has(&self, path: &str) -> bool {
        self.space.member(self.type_id, path).is_ok()
    }

    /// Returns what the pointer here points to.
    pub fn target(&self) -> Result<Self, Fault> {
        let pointee = self.space.btf().pointee(self.type_id);
        let pointee = pointee.ok_or_else(|| Fault::WrongKind(self.type_name(), "a pointer"))?;
        let address = self.space.memory().u64(self.address)?;
        if address == 0 {
            return Err(Fault::Null(self.address));
        }
        Ok(Self::new(self.space, address, pointee))
    }

    /// Returns the address in the pointer here, which may be null.
    pub fn pointer(&self) -> Result<u64, Fault> {
        Ok(self.space.memory().u64(self.address)?)
    }

    /// Returns the element `index` of the array here, or the one `index` elements behind this object.
    pub fn index(&self, index: u64) -> Result<Self, Fault> {
        let btf = self.space.btf();
        let element = btf.array(self.type_id).map_or(self.type_id, |(element, _)| element);
        let size = btf.size(element).ok_or_else(|| Fault::WrongKind(self.type_name(), "an array"))?;
        Ok(Self::new(self.space, self.address.wrapping_add(size.wrapping_mul(index)), element))
    }

    /// Returns the number of elements of the array here; 0 if it is none.
    pub fn len(&self) -> u64 {
        self.space.btf().array(self.type_id).map_or(0, |(_, len)| len.into())
    }

    /// Returns whether there are no elements: the array is empty, or this is another type.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the structure that has this object as its member `path`.
    pub fn container(&self, record: &str, path: &str) -> Result<Self, Fault> {
        let offset = self.space.offset_of(record, path)?;
        self.space.object(self.address.wrapping_sub(offset), record)
    }

    /// Returns the same address with another type.
    pub fn cast(&self, record: &str) -> Result<Self, Fault> {
        self.space.object(self.address, record)
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> Option<u64> {
        self.space.btf().size(self.type_id)
    }

    /// Reads an integer, an enum, a pointer, a bit field, or a structure around one of them (`atomic_t`), as BTF says
    /// how wide and whether signed.
    pub fn signed(&self) -> Result<i64, Fault> {
        let wrong = || Fault::WrongKind(self.type_name(), "a number");
        let btf = self.space.btf();
        let found = btf.resolve(self.type_id).ok_or_else(wrong)?;
        if matches!(found.kind, Kind::Struct | Kind::Union) {
            // atomic_t, atomic_long_t, refcount_t, seqcount_t, kuid_t, pgd_t, spinlock wrappers …
            for inner in ["counter", "refs", "sequence", "val", "v"] {
                if let Ok(inner) = self.member(inner) {
                    return inner.signed();
                }
            }
            return Err(wrong());
        }
        let size = if found.kind == Kind::Ptr { 8 } else { found.size_or_type as usize };
        if !matches!(found.kind, Kind::Int | Kind::Enum | Kind::Enum64 | Kind::Ptr) || size > 8 || size == 0 {
            return Err(wrong());
        }
        let bits = match (self.bits, found.kind) {
            (Some(bits), _) => Some(bits),
            // Old encodings have the width in the type.
            (None, Kind::Int) => {
                btf.int_bits(&found).filter(|(_, bits)| *bits > 0 && (*bits as usize) < size * 8)
            }
            _ => None,
        };
        let (shift, width) = bits.unwrap_or((0, size as u32 * 8));
        let mut bytes = [0; 16];
        let used = (shift + width).div_ceil(8).min(16) as usize;
        self.space.memory().read(self.address, bytes.get_mut(..used).unwrap_or_default())?;
        let word = (u128::from_le_bytes(bytes) >> shift) as u64;
        let unused = 64_u32.saturating_sub(width).min(63);
        Ok(match btf.is_signed(&found) {
            true => (word << unused) as i64 >> unused,
            false => (word << unused >> unused) as i64,
        })
    }

    /// Reads a number; negative ones wrap.
    pub fn unsigned(&self) -> Result<u64, Fault> {
        self.signed().map(|value| value as u64)
    }

    /// Reads the member `path` as a number.
    pub fn number(&self, path: &str) -> Result<u64, Fault> {
        self.get(path)?.unsigned()
    }

    /// Reads text: from an array of characters, or from where a pointer points to.
    pub fn text(&self) -> Result<String, Fault> {
        let memory = self.space.memory();
        if self.space.btf().pointee(self.type_id).is_some() {
            return match memory.u64(self.address)? {
                0 => Err(Fault::Null(self.address)),
                at => Ok(memory.text(at, LONGEST_TEXT)?),
            };
        }
        let size = self.size().filter(|size| *size > 0).unwrap_or(LONGEST_TEXT as u64);
        Ok(memory.text(self.address, size.min(LONGEST_TEXT as u64) as usize)?)
    }

    fn type_name(&self) -> String {
        let btf = self.space.btf();
        let name = btf.get(self.type_id).map(|found| btf.name(&found)).filter(|name| !name.is_empty());
        name.unwrap_or_else(|| format!("the value at {:#x}", self.address))
    }
}

impl Space<'_> {
    /// Returns the object of a structure at an address.
    pub fn object(&self, address: u64, record: &str) -> Result<Object<'_>, Fault> {
        Ok(Object::new(self, address, self.record(record)?))
    }

    /// Announces objects that are read soon. Memory on a server is fetched together.
    pub fn will_need(&self, objects: &[Object<'_>]) {
        if self.memory().is_remote() {
            let range = |object: &Object<'_>| {
                let start = object.address();
                Some(start..start.saturating_add(object.size()?))
            };
            self.memory().will_need(&objects.iter().filter_map(range).collect::<Vec<_>>());
        }
    }

    /// Announces a member of each object, and all pointers on the way to it: `signal->thread_head`; `mm->` is all that `mm` points to.
    /// Returns the members that can be reached; none of local memory, where nothing has to be announced.
    pub fn announce<'s>(&'s self, objects: &[Object<'s>], path: &str) -> Vec<Object<'s>> {
        if !self.memory().is_remote() {
            return Vec::new();
        }
        let mut found = objects.to_vec();
        for (at, part) in path.split("->").enumerate() {
            if at > 0 {
                found = found.iter().filter_map(|pointer| pointer.target().ok()).collect();
            }
            if !part.is_empty() {
                found = found.iter().filter_map(|object| object.get(part).ok()).collect();
            }
            self.will_need(&found);
        }
        found
    }
}
