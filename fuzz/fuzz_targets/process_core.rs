#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pagehaul_fuzz_targets::targets::process_core::run(data));
