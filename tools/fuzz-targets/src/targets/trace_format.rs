//! Event formats and header_page.

use pagehaul_trace::EventFormat;
use pagehaul_trace::ring::SubBufferLayout;

/// Runs the target, of bytes that are text.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(format) = EventFormat::parse("fuzz", text) {
        for field in &format.fields {
            assert!(format.slot(&field.name).is_some());
            if let Some(names) = format.value_names(&field.name) {
                names.print(5);
                assert!(names.names.iter().all(|(_, name)| names.value(name).is_some()));
            }
        }
    }
    if let Ok(layout) = SubBufferLayout::parse(text, false) {
        assert!(layout.data_offset <= layout.sub_buffer_size);
    }
}
