//! Addresses and the like, by their form.

use std::net::{IpAddr, SocketAddr};

/// What a word identifies, if anything.
pub(super) fn kind_of(word: &str) -> Option<&'static str> {
    let hex =
        |text: &str, digits: usize| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let groups = |separator: char, sizes: &[usize]| {
        word.split(separator).count() == sizes.len()
            && word.split(separator).zip(sizes).all(|(group, digits)| hex(group, *digits))
    };
    if groups(':', &[2; 6]) || groups('-', &[2; 6]) || groups(':', &[2; 20]) {
        return Some("mac");
    }
    if groups('-', &[8, 4, 4, 4, 12]) {
        return Some("uuid");
    }
    let address = word.split(['/', '%']).next().unwrap_or(word);
    let has_digit = address.bytes().any(|byte| byte.is_ascii_hexdigit());
    if has_digit && (address.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok()) {
        return Some("ip");
    }
    if word.len() > 2 && (word.starts_with('/') || word.starts_with("//")) {
        return Some("path");
    }
    let (user, host) = word.split_once('@')?;
    (!user.is_empty() && !host.is_empty()).then_some("address")
}
