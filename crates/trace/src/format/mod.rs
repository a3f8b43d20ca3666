//! What an event's record holds, as the kernel's `format` files say.

mod flags;
mod parse;
mod table;

pub use flags::ValueNames;
pub(crate) use parse::field as parse_field;
pub use table::Formats;

/// One kind of event: its name and where its fields lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFormat {
    /// Position in the [`Formats`] it belongs to: dense, so tables of handlers can be indexed by it.
    pub index: usize,
    /// The subsystem, `vmscan`; empty where a text trace does not say.
    pub system: String,
    /// The event's name, `mm_vmscan_kswapd_wake`.
    pub name: String,
    /// The number in `common_type` by which records name their event; 0 in text traces.
    pub id: u32,
    /// All fields in the order of the file, `common_` ones first.
    pub fields: Vec<Field>,
    /// The `print fmt` line without its label.
    pub print: String,
    pub(crate) common_pid: Option<Slot>,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, without brackets.
    pub name: String,
    /// Its type as the kernel spells it, `unsigned long`.
    pub type_name: String,
    /// Where it lies.
    pub slot: Slot,
}

/// Where a field's value lies in a record; cheap to copy and to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Byte offset in the record, or the number of the value in a text line.
    pub offset: u32,
    /// Bytes; 0 in text lines.
    pub size: u32,
    /// How to read it.
    pub kind: FieldKind,
}

/// How a field's bytes are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A number of `size` bytes.
    Integer {
        /// Two's complement.
        signed: bool,
    },
    /// `size` bytes of elements of `element` bytes each.
    Array {
        /// Bytes of one element.
        element: u32,
        /// Elements are two's complement.
        signed: bool,
    },
    /// `char` array of `size` bytes, ended by a zero byte if it is shorter.
    Chars,
    /// A 32-bit word: length in the upper half, offset from the record's begin in the lower half (`__data_loc`).
    DataLoc {
        /// Bytes of one element of what it points to.
        element: u32,
    },
    /// The same, but the offset counts from the end of the word (`__rel_loc`, since Linux 5.17, commit 55de2c0b5610c).
    RelLoc {
        /// Bytes of one element of what it points to.
        element: u32,
    },
    /// The value is text in a line.
    Text,
}

impl EventFormat {
    /// Parses the text of a `format` file. `system` is the name of its folder.
    ///
    /// # Errors
    /// [`crate::TraceError::EventFormat`] if the text lacks the name, the id, or has a field that cannot be.
    pub fn parse(system: &str, text: &str) -> Result<Self, crate::TraceError> {
        parse::parse(system, text)
    }

    /// Where the field of this name lies, none if this kernel's event has no such field.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.slot)
    }

    /// The names the kernel prints for values of a field (`__print_flags`, `__print_symbolic`), where the print format has
    /// any that can be worked out.
    pub fn value_names(&self, field: &str) -> Option<ValueNames> {
        flags::value_names(&self.print, field)
    }

    /// The first of several names that exists: fields are renamed from release to release.
    pub fn any_slot(&self, names: &[&str]) -> Option<Slot> {
        names.iter().find_map(|name| self.slot(name))
    }
}
