//! Event formats and header_page.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagehaul_trace::EventFormat;
use pagehaul_trace::ring::SubBufferLayout;

fuzz_target!(|text: &str| {
    if let Ok(format) = EventFormat::parse("fuzz", text) {
        for field in &format.fields {
            assert_eq!(format.slot(&field.name).is_some(), true);
            if let Some(names) = format.value_names(&field.name) {
                names.print(5);
                assert!(names.names.iter().all(|(_, name)| names.value(name).is_some()));
            }
        }
    }
    if let Ok(layout) = SubBufferLayout::parse(text, false) {
        assert!(layout.data_offset <= layout.sub_buffer_size);
    }
});
