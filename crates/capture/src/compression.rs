//! Which codecs and levels a capture may use.

use std::fmt;
use std::str::FromStr;

use pagehaul_codec::{Codec, Method, MethodError};

/// How pages are compressed. As text: `auto`, or a [`Method`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// All pages with one method: the bytes of the dump depend on the source only.
    Fixed(Method),
    /// Each batch with one of these codecs, at a level that depends on whether processors or disk are the bottleneck. The
    /// pages are the same every time, their stored bytes are not.
    Auto(Codecs),
}

impl Compression {
    /// Returns the methods to choose from, fastest first. Never empty.
    pub(crate) fn ladder(self) -> Vec<Method> {
        match self {
            Self::Fixed(method) => vec![method],
            Self::Auto(codecs) => codecs.ladder(),
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::Fixed(Method::default_of(Codec::Zstd))
    }
}

impl From<Method> for Compression {
    fn from(method: Method) -> Self {
        Self::Fixed(method)
    }
}

impl FromStr for Compression {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        if text == "auto" { Ok(Self::Auto(Codecs::default())) } else { text.parse().map(Self::Fixed) }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(method) => method.fmt(f),
            Self::Auto(_) => f.pad("auto"),
        }
    }
}

/// A set of codecs; never empty. As text: their names joined by commas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codecs(u8);

impl Codecs {
    fn of(codecs: &[Codec]) -> Self {
        Self(codecs.iter().fold(0, |set, &codec| set | 1 << codec as u8))
    }

    fn has(self, codec: Codec) -> bool {
        self.0 & 1 << codec as u8 != 0
    }

    /// Returns the methods of these codecs, each slower and stronger than the one before, as measured by `pagehaul bench
    /// codec` on the pages of a Debian system (docs/benchmarks). From LZO, their speeds are 1, 0.5 to 0.6, 0.3 to 0.4, 0.13
    /// and 0.03. Omitted are zstd levels below 1, which save a tenth less in nine tenths of the time of level 1's built-in
    /// encoder; zlib, which saves no more than zstd in less time; snappy, which saves less than LZO in the same time.
    fn ladder(self) -> Vec<Method> {
        let zstd = self.has(Codec::Zstd);
        let mut ladder = Vec::new();
        let mut add = |codec, levels: &[i32]| match levels {
            [] => ladder.push(Method::default_of(codec)),
            // The codec has each of these levels.
            _ => ladder.extend(levels.iter().filter_map(|&level| Method::new(codec, level).ok())),
        };
        if self.has(Codec::None) {
            add(Codec::None, &[]);
        }
        if self.has(Codec::Lzo) {
            add(Codec::Lzo, &[]);
        } else if self.has(Codec::Snappy) {
            add(Codec::Snappy, &[]);
        }
        if zstd {
            add(Codec::Zstd, &[1, 3, 6, 12]);
        } else if self.has(Codec::Zlib) {
            add(Codec::Zlib, &[1, 3, 6, 9]);
        }
        ladder
    }
}

impl Default for Codecs {
    /// Every codec that compresses: a disk that is faster than all codecs may still lack the room for uncompressed pages.
    fn default() -> Self {
        Self::of(&[Codec::Zlib, Codec::Lzo, Codec::Snappy, Codec::Zstd])
    }
}

impl FromStr for Codecs {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        let codecs: Result<Vec<Codec>, _> = text.split(',').map(|name| name.trim().parse()).collect();
        Ok(Self::of(&codecs?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(codecs: &str) -> Vec<String> {
        codecs.parse::<Codecs>().unwrap().ladder().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_the_codecs_named_are_chosen_from() {
        assert_eq!(ladder("lzo"), ["lzo"]);
        assert_eq!(ladder("none,snappy"), ["none", "snappy"]);
        assert_eq!(ladder("lzo, zlib"), ["lzo", "zlib:1", "zlib:3", "zlib:6", "zlib:9"]);
        assert_eq!(ladder("zstd"), ["zstd:1", "zstd:3", "zstd:6", "zstd:12"]);
        assert!("lzo,".parse::<Codecs>().is_err() && "zstd:3".parse::<Codecs>().is_err());
    }

    #[test]
    fn every_set_has_a_way_to_store_pages() {
        for set in 1..1 << Codec::ALL.len() {
            assert!(!Codecs(set).ladder().is_empty(), "{set:#b}");
        }
        let all = Codecs::default().ladder();
        assert_eq!(all.first(), Some(&Method::default_of(Codec::Lzo)));
    }

    #[test]
    fn auto_is_a_way_to_compress() {
        assert_eq!("auto".parse(), Ok(Compression::Auto(Codecs::default())));
        assert_eq!("zstd:3".parse::<Compression>().unwrap().to_string(), "zstd:3");
        assert_eq!("auto".parse::<Compression>().unwrap().to_string(), "auto");
    }
}
