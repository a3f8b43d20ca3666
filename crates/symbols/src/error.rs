use pagehaul_kernel::TranslateError;

/// Why the kernel's symbols cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    /// A table cannot be read.
    #[error("cannot read the kernel's {table}: {source}")]
    Unreadable {
        /// Name of the table.
        table: &'static str,
        /// The reason.
        source: TranslateError,
    },
    /// A table contradicts the format.
    #[error("the kernel's {table} is damaged: {reason}")]
    Damaged {
        /// Name of the table.
        table: &'static str,
        /// What was expected.
        reason: &'static str,
    },
    /// VMCOREINFO lacks `SYMBOL(_stext)`, which every kernel exports.
    #[error("VMCOREINFO has no SYMBOL(_stext), which verifies the kernel's symbols")]
    NoAnchor,
    /// No encoding of addresses gives `_stext` its value.
    #[error(
        "no known encoding of the kernel's symbol addresses gives _stext its value {expected:#x}: the tables are damaged, or the kernel is unknown to this version"
    )]
    WrongAnchor {
        /// Value of `_stext` in VMCOREINFO.
        expected: u64,
    },
    /// The search found no symbol tables.
    #[error(
        "the kernel image holds no symbol tables (built without CONFIG_KALLSYMS, or its pages are missing)"
    )]
    NotFound,
}
