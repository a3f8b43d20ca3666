use crate::error::RemoteError;

/// What a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// A file of a web server.
    Web(String),
    /// An object of a bucket.
    Bucket {
        bucket: String,
        /// The key of the object.
        key: String,
    },
}

impl Location {
    /// Parses a URL.
    pub(crate) fn parse(url: &str) -> Result<Self, RemoteError> {
        let wrong = |what: &str| Err(RemoteError::Settings(what.to_owned()));
        let Some((scheme, rest)) = url.split_once("://") else {
            return wrong("this is not a URL");
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        // They would be in process lists. A query may hold one.
        if host.split(['?', '#']).next().is_some_and(|host| host.contains('@')) {
            return wrong("a URL with a user name is refused; use s3:// or a presigned URL");
        }
        match scheme {
            "http" | "https" => {
                if host.is_empty() {
                    return wrong("the URL has no host");
                }
                Ok(Self::Web(url.split('#').next().unwrap_or(url).to_owned()))
            }
            "s3" => {
                if host.is_empty() || path.is_empty() {
                    return wrong("expected s3://BUCKET/KEY");
                }
                // A URL cannot have them: they would name another object.
                if path.split('/').any(|segment| segment == "." || segment == "..") {
                    return wrong("a key with `.` or `..` between slashes is not supported");
                }
                Ok(Self::Bucket { bucket: host.to_owned(), key: path.to_owned() })
            }
            _ => wrong("expected http://, https:// or s3://"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_are_told_apart() {
        let web = |url: &str| Ok(Location::Web(url.to_owned()));
        assert_eq!(Location::parse("https://host/a?b=c"), web("https://host/a?b=c"));
        assert_eq!(Location::parse("http://host#part"), web("http://host"));
        let object = Location::Bucket { bucket: "crashes".to_owned(), key: "host/1?2#3".to_owned() };
        assert_eq!(Location::parse("s3://crashes/host/1?2#3"), Ok(object));
        for url in [
            "s3://crashes",
            "s3:///key",
            "s3://b/a/../c",
            "https://user:secret@host/",
            "https://user:secret@host?x",
            "s3://KEY:secret@bucket/key",
            "https:///x",
            "ftp://host/x",
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(scheme in "(s3|https?|.{0,3})", rest in ".{0,40}") {
            let _ = Location::parse(&format!("{scheme}://{rest}"));
            let _ = Location::parse(&rest);
        }
    }
}
