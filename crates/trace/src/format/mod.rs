//! Event formats, from the kernel's `events/SYSTEM/EVENT/format` files.

mod flags;
mod parse;
mod table;

pub use flags::ValueNames;
pub(crate) use parse::field as parse_field;
pub use table::{Formats, PerFormat};

/// The format of one event: its name and the location of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFormat {
    /// Index in the [`Formats`] that hold it. Indices are dense, so that tables can be indexed by them.
    pub index: usize,
    /// The event system, such as `vmscan`; empty if a text trace does not name it.
    pub system: String,
    /// The event's name, such as `mm_vmscan_kswapd_wake`.
    pub name: String,
    /// The id that records hold in `common_type`; `u32::MAX` in text traces.
    pub id: u32,
    /// All fields in file order, the `common_` fields first.
    pub fields: Vec<Field>,
    /// The `print fmt` line without its label.
    pub print: String,
    pub(crate) common_pid: Option<Slot>,
}

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name, without brackets.
    pub name: String,
    /// Type as the kernel prints it, such as `unsigned long`.
    pub type_name: String,
    /// Location of the value.
    pub slot: Slot,
}

/// Location of a field's value in a record; cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Byte offset in the record, or index of the value in a text line.
    pub offset: u32,
    /// Size in bytes; 0 in text lines.
    pub size: u32,
    /// How to decode the value.
    pub kind: FieldKind,
}

/// How a field's bytes are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// An integer of `size` bytes.
    Integer {
        /// Whether the integer is signed.
        signed: bool,
    },
    /// An array of `size` bytes.
    Array {
        /// Bytes of one element.
        element: u32,
        /// Whether elements are signed.
        signed: bool,
    },
    /// A `char` array of `size` bytes, NUL-terminated if shorter.
    Chars,
    /// `__data_loc`: a 32-bit word with the length in the upper half and the offset from the start of the
    /// record in the lower half.
    DataLoc {
        /// Bytes of one element of the data.
        element: u32,
    },
    /// `__rel_loc`: like `__data_loc`, but the offset counts from the end of the word (since Linux 5.17,
    /// commit 55de2c0b5610c).
    RelLoc {
        /// Bytes of one element of the data.
        element: u32,
    },
    /// The value is text in a line.
    Text,
}

impl EventFormat {
    /// Parses the text of a `format` file. `system` is the name of the directory that contains it.
    ///
    /// # Errors
    /// [`crate::TraceError::EventFormat`] if the name or the id is missing, or a field is invalid.
    pub fn parse(system: &str, text: &str) -> Result<Self, crate::error::TraceError> {
        parse::parse(system, text)
    }

    /// Returns the location of a field, or `None` if this kernel's event lacks it.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.slot)
    }

    /// Returns the names that the kernel prints for the values of a field (`__print_flags`,
    /// `__print_symbolic`), if the print format has any with constant values.
    pub fn value_names(&self, field: &str) -> Option<ValueNames> {
        flags::value_names(&self.print, field)
    }

    /// Returns the first of several fields that exists, because fields are renamed between releases.
    pub fn any_slot(&self, names: &[&str]) -> Option<Slot> {
        names.iter().find_map(|name| self.slot(name))
    }
}
