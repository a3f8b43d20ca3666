//! Credentials and settings of object stores: from a file for capture kernels, the environment, the files of the AWS tools, and
//! the metadata service of a cloud instance, in this order.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use crate::error::RemoteError;

/// The file that an initramfs holds, unless `PAGEHAUL_S3` names another.
const FILE: &str = "/etc/pagehaul/s3";
/// Address of the metadata service: link-local, so that neither DNS nor TLS is needed.
const METADATA: &str = "http://169.254.169.254";

/// Bytes of an answer of the metadata service.
const MAX_METADATA: u64 = 64 << 10;

/// Credentials of an object store.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) key: String,
    pub(crate) secret: String,
    /// Of temporary credentials.
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// How an object store is reached.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) credentials: Credentials,
    /// Of a store that is not Amazon's.
    pub(crate) endpoint: Option<String>,
    pub(crate) region: String,
}

/// Names and values of one section of a file.
type Section = BTreeMap<String, String>;

impl Settings {
    /// Finds credentials and settings.
    pub(crate) fn find() -> Result<Self, RemoteError> {
        let own = own_file()?;
        let profile = env("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let aws_file = |variable: &str, name: &str, sections: &[&str]| -> Section {
            let path = env(variable)
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(env("HOME")?).join(".aws").join(name)));
            let text = path.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
            section(&text, sections)
        };
        let config = aws_file("AWS_CONFIG_FILE", "config", &[&profile, &format!("profile {profile}")]);
        let credentials = of(&own)
            .or_else(|| {
                Some(Credentials {
                    key: env("AWS_ACCESS_KEY_ID")?,
                    secret: env("AWS_SECRET_ACCESS_KEY")?,
                    token: env("AWS_SESSION_TOKEN"),
                })
            })
            .or_else(|| of(&aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", &[&profile])))
            .or_else(|| of(&config))
            .or_else(of_instance)
            .ok_or_else(|| {
                RemoteError::Settings(format!(
                    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write \
                     aws_access_key_id and aws_secret_access_key to {FILE}"
                ))
            })?;
        let value = |name: &str, variables: &[&str]| {
            own.get(name)
                .cloned()
                .or_else(|| variables.iter().find_map(|variable| env(variable)))
                .or_else(|| config.get(name).cloned())
        };
        Ok(Self {
            credentials,
            endpoint: value("endpoint_url", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
            region: value("region", &["AWS_REGION", "AWS_DEFAULT_REGION"])
                .unwrap_or_else(|| "us-east-1".to_owned()),
        })
    }
}

/// Returns the file of certificates to trust instead of those compiled in, if one is set.
pub(crate) fn ca_file() -> Result<Option<PathBuf>, RemoteError> {
    let set = own_file()?.get("ca_bundle").cloned();
    Ok(set.or_else(|| env("SSL_CERT_FILE")).or_else(|| env("AWS_CA_BUNDLE")).map(PathBuf::from))
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads pagehaul's own file, if there is one.
fn own_file() -> Result<Section, RemoteError> {
    let set = env("PAGEHAUL_S3");
    let path = Path::new(set.as_deref().unwrap_or(FILE));
    let failed = |error: io::Error| RemoteError::Settings(format!("cannot read {}: {error}", path.display()));
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && set.is_none() => return Ok(Section::new()),
        Err(error) => return Err(failed(error)),
    };
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(RemoteError::Settings(format!(
            "{path} holds credentials, but others can read it; run chmod 600 {path}"
        )));
    }
    // Sections are for the files of the AWS tools: here every line counts.
    Ok(lines(&fs::read_to_string(path).map_err(failed)?).filter_map(Line::value).collect())
}

/// Returns the values of the sections of these names.
pub(crate) fn section(text: &str, names: &[&str]) -> Section {
    let mut inside = false;
    lines(text)
        .filter_map(|line| match line {
            Line::Section(name) => {
                inside = names.contains(&name);
                None
            }
            Line::Value(name, value) => inside.then(|| (name.to_owned(), value.to_owned())),
        })
        .collect()
}

enum Line<'a> {
    Section(&'a str),
    Value(&'a str, &'a str),
}

impl Line<'_> {
    fn value(self) -> Option<(String, String)> {
        match self {
            Line::Section(_) => None,
            Line::Value(name, value) => Some((name.to_owned(), value.to_owned())),
        }
    }
}

/// The lines of a file with sections, without comments.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])).filter_map(|line| {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return Some(Line::Section(name.trim()));
        }
        let (name, value) = line.split_once('=')?;
        Some(Line::Value(name.trim(), value.trim()))
    })
}

fn of(section: &Section) -> Option<Credentials> {
    Some(Credentials {
        key: section.get("aws_access_key_id")?.clone(),
        secret: section.get("aws_secret_access_key")?.clone(),
        token: section.get("aws_session_token").cloned(),
    })
}

#[derive(Deserialize)]
struct InstanceCredentials {
    #[serde(rename = "AccessKeyId")]
    key: String,
    #[serde(rename = "SecretAccessKey")]
    secret: String,
    #[serde(rename = "Token")]
    token: Option<String>,
}

/// Asks the metadata service of the instance (version 2), if this machine is one.
fn of_instance() -> Option<Credentials> {
    if env("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let base = env("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| METADATA.to_owned());
    let base = base.trim_end_matches('/');
    // A machine that is not an instance has nothing at this address.
    let config = Agent::config_builder().timeout_global(Some(Duration::from_secs(2))).proxy(None);
    let agent: Agent = config.max_redirects(0).max_redirects_will_error(false).build().into();
    let text = |reply: Result<Response<Body>, ureq::Error>| {
        let mut reply = reply.ok().filter(|reply| reply.status() == StatusCode::OK)?;
        reply
            .body_mut()
            .with_config()
            .limit(MAX_METADATA)
            .read_to_string()
            .ok()
            .filter(|text| !text.is_empty())
    };
    let token = agent.put(format!("{base}/latest/api/token"));
    let token = text(token.header("x-aws-ec2-metadata-token-ttl-seconds", "21600").send_empty())?;
    let get = |path: &str| {
        let url = format!("{base}/latest/meta-data/iam/security-credentials/{path}");
        text(agent.get(url).header("x-aws-ec2-metadata-token", &token).call())
    };
    let roles = get("")?;
    let found: InstanceCredentials = serde_json::from_str(&get(roles.lines().next()?.trim())?).ok()?;
    Some(Credentials { key: found.key, secret: found.secret, token: found.token })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_profile_is_its_section() {
        let text = "# comment\n[default]\naws_access_key_id = A\naws_secret_access_key=B==\n[profile other]\nregion = eu\n";
        let credentials = of(&section(text, &["default"])).unwrap();
        assert_eq!(
            (credentials.key.as_str(), credentials.secret.as_str(), credentials.token),
            ("A", "B==", None)
        );
        assert!(of(&section(text, &["other"])).is_none());
        assert_eq!(section(text, &["other", "profile other"]).get("region").map(String::as_str), Some("eu"));
    }

    #[test]
    fn secrets_are_not_printed() {
        let credentials =
            Credentials { key: "AKID".into(), secret: "hidden".into(), token: Some("hidden".into()) };
        let settings = Settings { credentials, endpoint: None, region: "eu".into() };
        assert!(!format!("{settings:?}").contains("hidden"));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[\\[\\]a-b=# \n]{0,60}") {
            let _ = section(&text, &["a"]);
        }
    }
}
