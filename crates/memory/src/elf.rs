//! ELF vmcores.
