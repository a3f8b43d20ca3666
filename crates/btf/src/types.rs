//! What a BTF type is.

/// Number of a type. 0 is `void`.
pub type TypeId = u32;

/// Kind of a type (`BTF_KIND_*`, include/uapi/linux/btf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the format")]
pub enum Kind {
    Int,
    Ptr,
    Array,
    Struct,
    Union,
    Enum,
    Fwd,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Func,
    FuncProto,
    Var,
    Datasec,
    Float,
    DeclTag,
    TypeTag,
    Enum64,
}

impl Kind {
    pub(crate) fn new(number: u32) -> Option<Self> {
        use Kind::*;
        let all = [
            Int, Ptr, Array, Struct, Union, Enum, Fwd, Typedef, Volatile, Const, Restrict, Func, FuncProto,
            Var, Datasec, Float, DeclTag, TypeTag, Enum64,
        ];
        all.get((number as usize).checked_sub(1)?).copied()
    }

    /// Returns the number of bytes that follow the 12 of the type itself.
    pub(crate) fn trailing_bytes(self, entries: usize) -> usize {
        match self {
            Self::Int | Self::Var | Self::DeclTag => 4,
            Self::Array => 12,
            Self::Struct | Self::Union | Self::Datasec | Self::Enum64 => 12 * entries,
            Self::Enum | Self::FuncProto => 8 * entries,
            _ => 0,
        }
    }

    /// Returns whether the type only renames or qualifies another.
    pub(crate) fn is_transparent(self) -> bool {
        matches!(self, Self::Typedef | Self::Volatile | Self::Const | Self::Restrict | Self::TypeTag)
    }
}

/// One type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// Its number.
    pub id: TypeId,
    /// Its kind.
    pub kind: Kind,
    /// Offset of its name in the strings.
    pub(crate) name: u32,
    /// Members, enumerators or parameters.
    pub(crate) entries: usize,
    /// Bit fields among the members; signed values of an enum.
    pub(crate) flag: bool,
    /// Bytes, or the type it refers to.
    pub(crate) size_or_type: u32,
    /// Where the bytes after the type start, in the types.
    pub(crate) trailing: usize,
}

/// A member of a structure, or of one in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Bits from the start of the outermost structure.
    pub bit_offset: u64,
    /// Width in bits of a bit field.
    pub bits: Option<u32>,
    /// Its type.
    pub type_id: TypeId,
}
