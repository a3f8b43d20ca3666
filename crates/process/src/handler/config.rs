//! The handler's configuration file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagehaul_codec::{Codec, Method, zstd_level};
use pagehaul_present::number::parse_bytes;

/// A limit of the file system of the cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Bytes(u64),
    /// Of the file system's size.
    Percent(u64),
}

impl Space {
    /// In bytes, on a file system of `size` bytes.
    pub(super) fn of(self, size: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(size) * u128::from(percent) / 100) as u64,
        }
    }
}

/// How cores are handled: what `core.conf` says, and the defaults of what it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where cores are written.
    pub directory: PathBuf,
    /// zstd's level; `None` writes plain ELF.
    pub level: Option<i32>,
    /// Maximum bytes of memory in a core.
    pub max_core: u64,
    /// Maximum that all cores take on the disk.
    pub max_total: Space,
    /// Minimum that stays free on the disk.
    pub keep_free: Space,
    /// Age at which cores are removed.
    pub max_age: Option<Duration>,
    /// Maximum number of cores of an executable within a minute.
    pub rate: Option<u32>,
    /// Maximum bytes of memory for the copies of all handlers that run at once. None: half of what is available.
    pub max_memory: Option<u64>,
    /// Threads that copy and compress. None: one for each CPU.
    pub threads: Option<usize>,
    /// Whether memory is read from the process, which is faster, rather than from the kernel's pipe.
    pub from_process: bool,
    /// The file of recipients. None: cores are not encrypted.
    pub recipients: Option<PathBuf>,
    /// URL of the directory or prefix that cores are uploaded to, with a slash at its end.
    pub upload: Option<String>,
    /// Whether a core is removed once it is uploaded.
    pub removes_uploaded: bool,
    /// Why no core may be written: who is to read cores is not known.
    pub refusal: Option<String>,
    /// The socket of the journal.
    pub journal: PathBuf,
    /// What handlers that run at once share.
    pub runtime: PathBuf,
}

/// The configuration file.
pub const CONFIG_FILE: &str = "/etc/pagehaul/core.conf";
/// Cores are encrypted if this file exists and the configuration names no other.
pub const RECIPIENTS_FILE: &str = "/etc/pagehaul/recipients";
const LEVEL: i32 = 3;
const DAY: u64 = 24 * 60 * 60;

impl Default for Config {
    fn default() -> Self {
        Self {
            directory: "/var/lib/pagehaul/core".into(),
            level: Some(LEVEL),
            max_core: u64::MAX,
            // The last three as systemd-coredump and its tmpfiles have them.
            max_total: Space::Percent(10),
            keep_free: Space::Percent(15),
            max_age: Some(Duration::from_secs(14 * DAY)),
            rate: Some(10),
            max_memory: None,
            threads: None,
            from_process: true,
            recipients: is_wanted(Path::new(RECIPIENTS_FILE)).then(|| RECIPIENTS_FILE.into()),
            upload: None,
            removes_uploaded: false,
            refusal: None,
            journal: "/run/systemd/journal/socket".into(),
            runtime: "/run/pagehaul/core".into(),
        }
    }
}

/// Whether somebody put a file there, also one that cannot be reached: cores are not written in the clear then.
fn is_wanted(file: &Path) -> bool {
    !matches!(file.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

impl Config {
    /// Reads the file that the command line names, or else [`CONFIG_FILE`], which need not exist. What is wrong in it is returned
    /// as sentences, and the defaults hold in its place: a crash is no moment to refuse. But no core may be written if it is not known
    /// for whom it has to be encrypted: that could be in the clear.
    pub fn read(named: Option<&Path>) -> (Self, Vec<String>) {
        let path = named.unwrap_or(Path::new(CONFIG_FILE));
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {
                return (Self::default(), Vec::new());
            }
            Err(error) => {
                let refusal = Some(format!("cannot read {}: {error}", path.display()));
                return (Self { refusal, ..Self::default() }, Vec::new());
            }
        };
        let (mut config, wrong) = Self::parse(&String::from_utf8_lossy(&bytes));
        config.refusal = config.refusal.map(|why| format!("{}, {why}", path.display()));
        let place = |(line, what): (usize, String)| format!("{}, line {line}: {what}", path.display());
        (config, wrong.into_iter().map(place).collect())
    }

    /// Parses the text of a file. Returns the numbers of lines that are wrong as well, and why.
    pub fn parse(text: &str) -> (Self, Vec<(usize, String)>) {
        let (mut config, mut wrong) = (Self::default(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let set = match line.split_once('=') {
                Some((key, value)) if value.contains(" #") => Err(format!(
                    "{} is followed by a comment; expected the comment on another line",
                    key.trim()
                )),
                Some((key, value)) => config.set(key.trim(), value.trim()),
                None => Err("expected KEY = VALUE".into()),
            };
            let Err(what) = set else { continue };
            let start = line.get(..RECIPIENTS.len()).unwrap_or_default();
            if start.eq_ignore_ascii_case(RECIPIENTS) {
                config.refusal.get_or_insert_with(|| format!("line {}: {what}", index + 1));
            }
            wrong.push((index + 1, what));
        }
        (config, wrong)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("{key} is {value:?}; expected {expected}");
        match key {
            "directory" => self.directory = absolute(value).ok_or_else(|| wrong(ABSOLUTE))?,
            "runtime" => self.runtime = absolute(value).ok_or_else(|| wrong(ABSOLUTE))?,
            "journal" => self.journal = absolute(value).ok_or_else(|| wrong(ABSOLUTE))?,
            "recipients" => match value {
                "none" => self.recipients = None,
                _ => {
                    self.recipients = Some(absolute(value).ok_or_else(|| wrong("an absolute path, or none"))?)
                }
            },
            "upload" => {
                self.upload = match value {
                    "none" => None,
                    // A URL may hold a password.
                    _ => Some(prefix(value).ok_or_else(|| {
                        "upload is not understood; expected s3://BUCKET/PREFIX, ssh://HOST/DIRECTORY or none".to_owned()
                    })?),
                }
            }
            "after_upload" => {
                self.removes_uploaded = match value {
                    "keep" => false,
                    "remove" => true,
                    _ => return Err("after_upload is not understood; expected keep or remove".into()),
                }
            }
            "compress" => {
                let method: Option<Method> = value.parse().ok();
                self.level = match method {
                    Some(method) if method.codec() == Codec::None => None,
                    method => {
                        Some(method.and_then(zstd_level).ok_or_else(|| wrong("zstd, zstd:LEVEL or none"))?)
                    }
                };
            }
            "max_core" => {
                self.max_core = unless(value, "none", u64::MAX).map_err(|_| wrong("a size, or none"))?
            }
            "max_total" => {
                self.max_total = space(value).ok_or_else(|| wrong("a size, or a share such as 10%"))?
            }
            "keep_free" => {
                self.keep_free = space(value).ok_or_else(|| wrong("a size, or a share such as 15%"))?
            }
            "max_memory" => {
                let bytes = unless(value, "auto", 0).map_err(|_| wrong("a size, or auto"))?;
                self.max_memory = (bytes > 0).then_some(bytes);
            }
            "max_age" => {
                let days: u64 = whole(value, "none").ok_or_else(|| wrong("a number of days, or none"))?;
                self.max_age = (days > 0).then(|| Duration::from_secs(days.saturating_mul(DAY)));
            }
            "rate" => {
                let rate: u32 = whole(value, "none").ok_or_else(|| wrong("cores per minute, or none"))?;
                self.rate = (rate > 0).then_some(rate);
            }
            "threads" => {
                let threads: usize = whole(value, "auto").ok_or_else(|| wrong("a number, or auto"))?;
                self.threads = (threads > 0).then_some(threads.min(MAX_THREADS));
            }
            "read" => {
                self.from_process = match value {
                    "process" => true,
                    "pipe" => false,
                    _ => return Err(wrong("process or pipe")),
                }
            }
            _ => return Err(format!("there is no setting {key:?}")),
        }
        Ok(())
    }
}

/// What begins a line that is about recipients, also where the name is misspelt.
const RECIPIENTS: &str = "recip";
const ABSOLUTE: &str = "an absolute path";
const MAX_THREADS: usize = 1024;

fn absolute(value: &str) -> Option<PathBuf> {
    Some(PathBuf::from(value)).filter(|path| path.is_absolute())
}

/// A URL of another machine, with a slash at its end.
fn prefix(value: &str) -> Option<String> {
    let rest = value.strip_prefix("s3://").or_else(|| value.strip_prefix("ssh://"))?;
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Over ssh, a core has to be in a directory. Signed URLs are for one object.
    let is_named =
        !place.is_empty() && !value.contains('?') && (value.starts_with("s3://") || !path.is_empty());
    is_named.then(|| format!("{}/", value.trim_end_matches('/')))
}

/// A size; `otherwise` for the word.
fn unless(value: &str, word: &str, otherwise: u64) -> Result<u64, String> {
    if value == word { Ok(otherwise) } else { parse_bytes(value) }
}

/// A number; 0 for the word.
fn whole<T: std::str::FromStr + From<u8>>(value: &str, word: &str) -> Option<T> {
    if value == word { Some(T::from(0)) } else { value.parse().ok() }
}

fn space(value: &str) -> Option<Space> {
    match value.strip_suffix('%') {
        Some(percent) => {
            percent.trim_end().parse().ok().filter(|percent| *percent <= 100).map(Space::Percent)
        }
        None => parse_bytes(value).ok().map(Space::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_setting_is_read() {
        let text = "# comment\n\n directory = /cores \ncompress=zstd:-5\nmax_core = 2G\nmax_total = 20%\nkeep_free = 1G\n\
                    max_age = 3\nrate = none\nmax_memory = 64M\nthreads = 2\nread = pipe\nrecipients = none\n\
                    upload = s3://cores/web\nafter_upload = remove\njournal = /j\nruntime = /r\n";
        let (config, wrong) = Config::parse(text);
        assert_eq!(wrong, []);
        let expected = Config {
            directory: "/cores".into(),
            level: Some(-5),
            max_core: 2 << 30,
            max_total: Space::Percent(20),
            keep_free: Space::Bytes(1 << 30),
            max_age: Some(Duration::from_secs(3 * DAY)),
            rate: None,
            max_memory: Some(64 << 20),
            threads: Some(2),
            from_process: false,
            recipients: None,
            upload: Some("s3://cores/web/".into()),
            removes_uploaded: true,
            refusal: None,
            journal: "/j".into(),
            runtime: "/r".into(),
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn what_is_wrong_is_named_and_leaves_the_default() {
        let text = "directory = cores\ncompress = lzo\nmax_total = 101%\nmax_core = much\nsize = 1\nnonsense\nread = x\nthreads = 3";
        let (config, wrong) = Config::parse(text);
        assert_eq!(config, Config { threads: Some(3), ..Config::default() });
        let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(wrong[0].1, r#"directory is "cores"; expected an absolute path"#);
        assert_eq!(wrong[4].1, r#"there is no setting "size""#);
        let (config, wrong) = Config::parse("directory = /cores # here\nupload = https://me:secret@host/");
        assert_eq!(config, Config::default());
        assert!(
            wrong[0].1.contains("is followed by a comment") && !wrong[1].1.contains("secret"),
            "{wrong:?}"
        );
    }

    #[test]
    fn recipients_that_are_not_understood_allow_no_core() {
        for line in
            ["recipients = conf", "recipients =", "recipient = /r", "Recipients = /r", "recipients /r"]
        {
            let (config, wrong) = Config::parse(&format!("rate = 1\n{line}\nrecipients = none"));
            assert_eq!(wrong.len(), 1, "{line}");
            assert_eq!(config.refusal, Some(format!("line 2: {}", wrong[0].1)));
        }
        assert_eq!(Config::parse("recipients = /r\nsize = 1").0.refusal, None);
    }

    #[test]
    fn uploads_go_to_a_prefix_or_a_directory() {
        for (value, expected) in [
            ("s3://cores", Some("s3://cores/")),
            ("s3://cores/a//", Some("s3://cores/a/")),
            ("ssh://me@host:22/var/cores", Some("ssh://me@host:22/var/cores/")),
            ("ssh://host", None),
            ("ssh://host/", None),
            ("s3://", None),
            ("s3:///a", None),
            ("s3://cores/a?X-Amz-Signature=secret", None),
            ("https://host/a", None),
            ("/var/cores", None),
        ] {
            assert_eq!(prefix(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_file_that_is_named_has_to_exist() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("core.conf");
        let (config, _) = Config::read(Some(&path));
        assert!(config.refusal.is_some_and(|why| why.starts_with("cannot read ")));
        std::fs::write(&path, "recipient = /r").unwrap();
        let (config, _) = Config::read(Some(&path));
        assert!(config.refusal.is_some_and(|why| why.contains("core.conf, line 1: there is no setting")));
    }

    #[test]
    fn shares_do_not_overflow() {
        assert_eq!(Space::Percent(50).of(u64::MAX), u64::MAX / 2);
        assert_eq!(Space::Bytes(7).of(0), 7);
    }

    proptest! {
        #[test]
        fn any_text_is_no_reason_to_panic(text in "(?s).{0,300}") {
            let _ = Config::parse(&text);
        }

        #[test]
        fn any_value_is_no_reason_to_panic(
            key in prop::sample::select(vec!["max_core", "max_total", "keep_free", "max_age", "rate", "threads", "compress"]),
            value in "[0-9.%KMGTib:a-z-]{0,24}",
        ) {
            let (_, wrong) = Config::parse(&format!("{key} = {value}"));
            prop_assert!(wrong.len() <= 1);
        }
    }
}
