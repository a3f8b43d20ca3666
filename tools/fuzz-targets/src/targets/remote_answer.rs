//! Answers of web servers and object stores to every kind of request, and the URLs and settings that lead to them.

/// Runs the target.
pub fn run(data: &[u8]) {
    pagehaul_remote::fuzzing::answer(data);
    if let Ok(text) = std::str::from_utf8(data) {
        pagehaul_remote::fuzzing::settings(text);
    }
}
