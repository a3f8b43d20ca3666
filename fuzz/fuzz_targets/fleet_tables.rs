#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pagehaul_fuzz_targets::targets::fleet_tables::run(data));
