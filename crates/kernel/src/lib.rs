//! VMCOREINFO, page tables, memory models and page classes of Linux kernels.
