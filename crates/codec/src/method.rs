use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Why a text or a number is not a compression method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// The codec is unknown.
    #[error("unknown compression {name:?}; use none, zlib[:1..12], lzo, snappy or zstd[:-100..22]")]
    UnknownCodec {
        /// The name given.
        name: String,
    },
    /// The level is not a number.
    #[error("{text:?} is not a compression level; {codec} takes a whole number from {min} to {max}")]
    NotALevel {
        /// The codec.
        codec: Codec,
        /// The text given.
        text: String,
        /// Lowest level.
        min: i32,
        /// Highest level.
        max: i32,
    },
    /// The level is outside the codec's range.
    #[error("{codec} has no level {level}; use one from {min} to {max}{except}", except = if *min < 0 { " other than 0" } else { "" })]
    LevelOutOfRange {
        /// The codec.
        codec: Codec,
        /// The level given.
        level: i32,
        /// Lowest level.
        min: i32,
        /// Highest level.
        max: i32,
    },
    /// The codec has no levels.
    #[error("{codec} has no levels; write just \"{codec}\"")]
    NoLevels {
        /// The codec.
        codec: Codec,
    },
}

/// The format of a page's compressed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Uncompressed.
    None,
    /// DEFLATE in a zlib wrapper (RFC 1950).
    Zlib,
    /// LZO1X, bitstream version 0.
    Lzo,
    /// The raw snappy format, without framing.
    Snappy,
    /// One Zstandard frame (RFC 8878).
    Zstd,
}

impl Codec {
    /// Every codec.
    pub const ALL: [Self; 5] = [Self::None, Self::Zlib, Self::Lzo, Self::Snappy, Self::Zstd];

    /// Returns the name that [`Method`] parses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the range of levels, if the codec has any. 0 is in zstd's range, but libzstd takes it for its
    /// default, so it is refused.
    pub const fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            // libdeflate's levels: 1 to 9 correspond to zlib's, 10 to 12 search longer.
            Self::Zlib => Some(1..=12),
            // libzstd accepts levels down to -131072. Each lower level skips one more byte between searches,
            // which finds nothing in a page long before -100.
            Self::Zstd => Some(-100..=22),
            Self::None | Self::Lzo | Self::Snappy => None,
        }
    }

    /// Returns the level for a capture kernel: the one that saves most bytes for its time; 0 for codecs
    /// without levels.
    pub(crate) const fn default_level(self) -> i32 {
        match self {
            Self::Zlib | Self::Zstd => 1,
            Self::None | Self::Lzo | Self::Snappy => 0,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Codec {
    type Err = MethodError;

    fn from_str(name: &str) -> Result<Self, MethodError> {
        let known = Self::ALL.into_iter().find(|codec| codec.name() == name);
        known.ok_or_else(|| MethodError::UnknownCodec { name: name.to_owned() })
    }
}

/// A codec and its level. As text: `none`, `zlib[:1..12]`, `lzo`, `snappy`, `zstd[:-100..22]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method {
    codec: Codec,
    level: i32,
}

impl Method {
    /// No compression.
    pub const NONE: Self = Self::default_of(Codec::None);

    /// Returns a codec at its default level.
    pub const fn default_of(codec: Codec) -> Self {
        Self { codec, level: codec.default_level() }
    }

    /// Returns a codec at a level, which must be one of [`Codec::levels`].
    pub fn new(codec: Codec, level: i32) -> Result<Self, MethodError> {
        let levels = codec.levels().ok_or(MethodError::NoLevels { codec })?;
        if level == 0 || !levels.contains(&level) {
            let (min, max) = levels.into_inner();
            return Err(MethodError::LevelOutOfRange { codec, level, min, max });
        }
        Ok(Self { codec, level })
    }

    /// Returns the codec.
    pub const fn codec(self) -> Codec {
        self.codec
    }

    /// Returns the level; 0 for a codec without levels.
    pub const fn level(self) -> i32 {
        self.level
    }
}

impl From<Codec> for Method {
    fn from(codec: Codec) -> Self {
        Self::default_of(codec)
    }
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        let Some((name, level)) = text.split_once(':') else {
            return text.parse::<Codec>().map(Self::default_of);
        };
        let codec: Codec = name.parse()?;
        let (min, max) = codec.levels().ok_or(MethodError::NoLevels { codec })?.into_inner();
        let level =
            level.parse().map_err(|_| MethodError::NotALevel { codec, text: level.to_owned(), min, max })?;
        Self::new(codec, level)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.codec.levels() {
            Some(_) => f.pad(&format!("{}:{}", self.codec, self.level)),
            None => f.pad(self.codec.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Method>().unwrap_err().to_string()
    }

    #[test]
    fn names_and_levels_parse() {
        for (text, codec, level) in [
            ("none", Codec::None, 0),
            ("zlib", Codec::Zlib, 1),
            ("zlib:12", Codec::Zlib, 12),
            ("lzo", Codec::Lzo, 0),
            ("snappy", Codec::Snappy, 0),
            ("zstd", Codec::Zstd, 1),
            ("zstd:-5", Codec::Zstd, -5),
            ("zstd:22", Codec::Zstd, 22),
        ] {
            let method: Method = text.parse().unwrap();
            assert_eq!((method.codec(), method.level()), (codec, level), "{text}");
            assert_eq!(method.to_string().parse(), Ok(method));
        }
    }

    #[test]
    fn errors_name_what_is_allowed() {
        assert_eq!(error("zlib:13"), "zlib has no level 13; use one from 1 to 12");
        assert_eq!(error("zlib:0"), "zlib has no level 0; use one from 1 to 12");
        assert_eq!(error("zstd:0"), "zstd has no level 0; use one from -100 to 22 other than 0");
        assert_eq!(
            error("zstd:fast"),
            "\"fast\" is not a compression level; zstd takes a whole number from -100 to 22"
        );
        assert_eq!(error("lzo:1"), "lzo has no levels; write just \"lzo\"");
        assert_eq!(
            error("gzip"),
            "unknown compression \"gzip\"; use none, zlib[:1..12], lzo, snappy or zstd[:-100..22]"
        );
    }

    #[test]
    fn defaults_are_levels_of_their_codec() {
        for codec in Codec::ALL {
            let method = Method::default_of(codec);
            assert!(codec.levels().is_none() || Method::new(codec, method.level()) == Ok(method));
        }
    }
}
