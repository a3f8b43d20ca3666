use pagehaul_kernel::TranslateError;

/// Why a value cannot be had. Fields come and go with kernels, so callers treat most of these as an answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The kernel has no such type.
    #[error("the kernel's BTF has no type {0}")]
    NoType(String),
    /// There are no types at all: the kernel has none, or they could not be read.
    #[error("the type {0} is not known without the kernel's BTF")]
    NoBtf(String),
    /// A list that could lead to what is asked for could not be read to its end.
    #[error("{0}")]
    NotRead(String),
    /// The type has no such field.
    #[error("{record} has no field {field}")]
    NoField {
        /// Name of the structure.
        record: String,
        /// The path as requested.
        field: String,
    },
    /// The kernel has no such symbol.
    #[error("the kernel has no symbol {0}")]
    NoSymbol(String),
    /// The value has another type than the access needs.
    #[error("{0} cannot be read as {1}")]
    WrongKind(String, &'static str),
    /// A pointer is null.
    #[error("the pointer at {0:#x} is null")]
    Null(u64),
    /// Memory cannot be read.
    #[error(transparent)]
    Unreadable(#[from] TranslateError),
}
