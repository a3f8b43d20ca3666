//! Crashes real kernels in QEMU and checks what pagehaul made of them.
fn main() {}
