//! Dumps over ssh, by the system's client and a shell, `dd` and `sha256sum` on the other host.
//!
//! The stream goes to `PATH.incomplete`, which gets its name once it is complete. Another upload sends what is missing: if
//! the unfinished file has the checksum of as many bytes at the start of the stream, the upload skips these bytes.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pagehaul_physmem::file::shown;
use pagehaul_run::{Moved, Patience, Retry, Stop};
use sha2::{Digest, Sha256};

use crate::error::{Lost, UploadError};
use crate::{Stream, Uploaded};

const SCHEME: &str = "ssh://";
/// Bytes whose checksum tells a stream of another crash, or with other options, before more is skipped.
const FIRST: u64 = 1 << 20;
/// Bytes of messages that are kept.
const MAX_MESSAGE: u64 = 64 << 10;
/// Exit status of the client when the connection fails.
const CONNECTION: i32 = 255;

// The scripts are single lines: a login shell such as csh takes no others.
/// Prints what is there: `exists`; of the unfinished file `other` if it is not a file, `foreign` if others could have opened it, or
/// its size with the checksums of its first bytes and of all.
const LOOK: &str = concat!(
    r#"own=; p=$1.incomplete; "#,
    r#"if [ -e "$1" ] || [ -L "$1" ]; then echo pagehaul exists; "#,
    r#"elif [ -L "$p" ]; then echo pagehaul other; "#,
    r#"elif [ -f "$p" ]; then "#,
    r#"case $(ls -ld "$p") in -rw-------*) [ -O "$p" ] && own=1;; esac; "#,
    r#"if [ -z "$own" ]; then echo pagehaul foreign; "#,
    r#"elif [ -s "$p" ]; then n=$(wc -c <"$p"); "#,
    r#"echo pagehaul $n $(head -c 1048576 "$p" | head -c $n | sha256sum) $(head -c $n "$p" | sha256sum); "#,
    r#"else echo pagehaul 0; fi; "#,
    r#"elif [ -e "$p" ]; then echo pagehaul other; "#,
    r#"else echo pagehaul 0; fi"#,
);
/// Writes at an offset: bytes of an earlier connection that arrive late are the same, and go to the same place. A new file is one that
/// nobody else has open, and nobody else has begun: two dumps must not mix.
const APPEND: &str = concat!(
    r#"umask 077; p=$1.incomplete; "#,
    r#"if [ "$2" -eq 0 ] && [ -s "$p" ]; then echo "another upload writes $p" >&2; exit 5; fi; "#,
    r#"[ -e "$p" ] || [ -L "$p" ] || (set -C; : >"$p") || exit 3; "#,
    r#"if [ -L "$p" ]; then :; elif [ -f "$p" ] && [ -O "$p" ]; then "#,
    r#"exec dd of="$p" bs=1048576 seek="$2" oflag=seek_bytes iflag=fullblock conv=notrunc,fsync status=none; fi; "#,
    r#"echo "$p is not a file of this user" >&2; exit 3"#,
);
/// Exit status of [`APPEND`] where it wrote nothing; that of dd is 1.
const WROTE_NOTHING: i32 = 3;
/// Exit status of [`APPEND`] where another upload began meanwhile, or bytes of a lost connection arrived.
const BEGUN: i32 = 5;
/// Keeps the unfinished file of another stream.
const ASIDE: &str =
    r#"n=1; while [ -e "$1.incomplete.$n" ]; do n=$((n+1)); done; mv "$1.incomplete" "$1.incomplete.$n""#;
/// Gives the file its name, unless that is taken. Says `done` again if the answer was lost. What is there begins with the bytes that
/// were sent, or another upload has replaced it.
const FINISH: &str = concat!(
    r#"p=$1.incomplete; f=$p; [ -e "$p" ] || f=$1; "#,
    r#"s=$(head -c "$3" "$f" | sha256sum); s=${s%% *}; "#,
    r#"[ -z "$s" ] || [ "$s" = "$4" ] || { echo pagehaul other; exit; }; "#,
    r#"if [ -e "$p" ]; then "#,
    r#"[ "$(wc -c <"$p")" -eq "$2" ] || { echo pagehaul size; exit; }; "#,
    r#"if ln "$p" "$1" 2>/dev/null || [ "$1" -ef "$p" ]; then rm "$p"; "#,
    r#"elif [ -e "$1" ] || [ -L "$1" ]; then echo pagehaul exists; exit; "#,
    r#"else mv -n "$p" "$1" || exit 1; fi; "#,
    r#"else [ "$(wc -c <"$1")" -eq "$2" ] || { echo pagehaul size; exit; }; fi; "#,
    r#"sync "$1" "${1%/*}/" 2>/dev/null || sync; echo pagehaul done"#,
);

/// Returns whether a file of this name is reached over ssh.
pub(crate) fn is_ssh(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(SCHEME.as_bytes())
}

/// A file of another host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RemotePath {
    /// `HOST` or `USER@HOST`.
    host: String,
    port: Option<u16>,
    path: String,
}

impl RemotePath {
    fn parse(url: &str) -> Result<Self, &'static str> {
        let rest = url.strip_prefix(SCHEME).unwrap_or(url);
        let (authority, path) = rest.split_once('/').ok_or("expected ssh://[USER@]HOST[:PORT]/PATH")?;
        let (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("expected [HOST]:PORT")?)),
            None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
        };
        let port = match port.map(str::parse) {
            None => None,
            Some(Ok(port)) => Some(port),
            Some(Err(_)) => return Err("the port is not a number"),
        };
        // The client takes what starts with a hyphen for an option, and may pass names to a shell.
        let is_name = |name: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:%".contains(&byte);
            !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
        };
        if !is_name(host) || user.is_some_and(|user| !is_name(user) || user.contains(':')) {
            return Err("the host or the user has characters that names do not have");
        }
        if path.is_empty() || path.ends_with('/') || path.chars().any(char::is_control) {
            return Err("expected the path of a file, without control characters");
        }
        let host = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
        Ok(Self { host, port, path: format!("/{path}") })
    }

    /// A command that runs a script on the host, with the path and `arguments` as its arguments.
    fn command(&self, script: &str, arguments: &[&str]) -> Command {
        let client = std::env::var("PAGEHAUL_SSH").unwrap_or_default();
        let mut words = client.split_ascii_whitespace();
        let mut command = Command::new(words.next().unwrap_or("ssh"));
        command.args(words);
        for option in
            ["BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=4"]
        {
            command.args(["-o", option]);
        }
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        let words = [script, "sh", &self.path].into_iter().chain(arguments.iter().copied());
        let words = words.map(quote).collect::<Vec<_>>().join(" ");
        command.args(["--", &self.host, &format!("exec sh -c {words}")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Quotes a word for a shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The unfinished file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unfinished {
    /// There is none, or an empty one.
    None,
    /// Others could have opened it.
    Foreign,
    Own {
        size: u64,
        first: String,
        whole: String,
    },
}

/// An upload that has begun.
pub(crate) struct Session {
    file: RemotePath,
    /// As messages show it.
    url: String,
    /// Whether each try has other bytes, because the stream is encrypted.
    begins_anew: bool,
    there: Unfinished,
    stop: Stop,
    moved: Moved,
}

impl Session {
    /// Begins an upload, or continues an earlier one. Fails if there is a file of this name: none is replaced.
    pub(crate) fn begin(url: &str, begins_anew: bool, stop: Stop) -> Result<Self, UploadError> {
        let name = shown(url.as_ref()).display().to_string();
        let file = RemotePath::parse(url)
            .map_err(|why| UploadError::refused(format!("cannot write {name}: {why}")))?;
        let moved = Moved::default();
        let mut session = Self { file, url: name, begins_anew, there: Unfinished::None, stop, moved };
        let answer = session.ask(LOOK, &[], false)?;
        let words: Vec<_> = answer.iter().map(String::as_str).collect();
        session.there = match words.as_slice() {
            ["exists"] => return Err(session.exists()),
            ["other"] => {
                let path = &session.file.path;
                return Err(session.refused(&format!("{path}.incomplete there is not a file; remove it")));
            }
            ["foreign"] => Unfinished::Foreign,
            ["0"] => Unfinished::None,
            // Without sha256sum there are no sums.
            [size, rest @ ..] => Unfinished::Own {
                size: size.parse().map_err(|_| session.odd(&answer))?,
                first: rest.first().copied().unwrap_or_default().to_owned(),
                whole: rest.get(2).copied().unwrap_or_default().to_owned(),
            },
            [] => return Err(session.odd(&answer)),
        };
        Ok(session)
    }

    /// Uploads all that `stream` has. The file exists once this returns.
    pub(crate) fn send(&self, stream: &mut Stream) -> Result<Uploaded, UploadError> {
        let mut first = Vec::new();
        let mut resumed = 0;
        let mut start = None;
        match &self.there {
            Unfinished::None => {}
            Unfinished::Foreign => drop(self.ask(ASIDE, &[], false)?),
            Unfinished::Own { size, first: sum, whole } => {
                match skip(stream, *size, sum, whole).map_err(|error| self.unreadable(&error))? {
                    Skipped::Same => {
                        resumed = *size;
                        start = Some(Start { bytes: resumed.min(FIRST), sum: sum.clone() });
                    }
                    Skipped::OtherFromStart(bytes) => {
                        self.ask(ASIDE, &[], false)?;
                        first = bytes;
                    }
                    // The stream cannot be rewound: the capture has to produce it again.
                    Skipped::Other => {
                        self.ask(ASIDE, &[], false)?;
                        let why = "what is there differs from the dump, which is sent again";
                        return Err(UploadError::lost(self.message(why, false), Lost::Replaced));
                    }
                }
            }
        }
        let mut stream = Beginning { inner: first.as_slice().chain(stream), left: FIRST, sum: Sha256::new() };
        let sent = self.append(&mut stream, resumed)?;
        self.finish(resumed + sent, &start.unwrap_or_else(|| stream.start()))?;
        Ok(Uploaded { resumed })
    }

    /// Writes a stream at `offset`. Returns how many bytes it had.
    fn append(&self, stream: &mut impl Read, offset: u64) -> Result<u64, UploadError> {
        let mut command = self.file.command(APPEND, &[&offset.to_string()]);
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(|error| self.no_client(&error))?;
        let mut sent = 0;
        let mut copied = Ok(());
        let input = child.stdin.take();
        let copy = || {
            let mut input = input?;
            let mut buffer = vec![0; 256 << 10];
            loop {
                self.moved.idle();
                let count = match stream.read(&mut buffer) {
                    Ok(0) => return None,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => {
                        copied = Err(error);
                        return None;
                    }
                };
                // Why it took no more is in its messages.
                self.moved.now();
                input.write_all(&buffer[..count]).ok()?;
                sent += count as u64;
            }
        };
        let (_, status, message) = self.run(child, copy).map_err(|error| self.no_client(&error))?;
        copied.map_err(|error| self.unreadable(&error))?;
        if status.success() {
            Ok(sent)
        } else {
            let wrote = sent > 0 && !matches!(status.code(), Some(WROTE_NOTHING | BEGUN));
            Err(self.failed(status, &message, offset > 0 || wrote, wrote))
        }
    }

    fn finish(&self, size: u64, start: &Start) -> Result<(), UploadError> {
        let (size, bytes) = (size.to_string(), start.bytes.to_string());
        let mut retry = Retry::new(Patience::UPLOAD.later, &self.stop);
        loop {
            match self.ask(FINISH, &[&size, &bytes, &start.sum], true) {
                Ok(answer) => {
                    return match answer.first().map(String::as_str) {
                        Some("done") => Ok(()),
                        Some("exists") => Err(self.exists()),
                        Some("other") => {
                            let why = "what is there is not what was sent: another upload replaced it, or it changed on its way";
                            Err(UploadError::lost(self.message(why, false), Lost::Replaced))
                        }
                        Some("size") => Err(UploadError::lost(
                            self.message("not all that was sent is there", true),
                            Lost::Replaced,
                        )),
                        _ => Err(self.odd(&answer)),
                    };
                }
                Err(error) if error.is_lost() && retry.wait(Duration::ZERO) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a script on the host, and returns the words of its answer. `is_sent` is whether the host has something of the stream.
    fn ask(&self, script: &str, arguments: &[&str], is_sent: bool) -> Result<Vec<String>, UploadError> {
        self.moved.now();
        let spawned = self.file.command(script, arguments).spawn().map_err(|error| self.no_client(&error))?;
        let (output, status, message) = self.run(spawned, || None).map_err(|error| self.no_client(&error))?;
        if !status.success() {
            return Err(self.failed(status, &message, is_sent, false));
        }
        // A login shell may print more.
        let words = output.lines().rev().find_map(|line| line.strip_prefix("pagehaul "));
        Ok(words.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect())
    }

    /// Waits for the client, which `feed` gives its input. Returns its output, status and messages. The client is killed if it
    /// hangs after the run was cancelled.
    fn run(
        &self,
        mut child: Child,
        feed: impl FnOnce() -> Option<()>,
    ) -> io::Result<(String, ExitStatus, String)> {
        let (messages, output) = (child.stderr.take(), child.stdout.take());
        let child = Mutex::new(child);
        let lock = || child.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.end_if_stuck(
            &self.moved,
            || drop(lock().kill()),
            || {
                let reader = thread::spawn(move || messages.map_or_else(String::new, text));
                feed();
                self.moved.now();
                let output = output.map_or_else(String::new, text);
                let message = reader.join().unwrap_or_default();
                Ok((output, lock().wait()?, message))
            },
        )
    }

    fn failed(&self, status: ExitStatus, message: &str, is_sent: bool, progress: bool) -> UploadError {
        let why = last_line(message).unwrap_or_else(|| format!("the ssh client ended with {status}"));
        // The client is not let in, now or later.
        let refused =
            ["Permission denied (", "Host key verification failed"].iter().any(|text| message.contains(text));
        let message = self.message(&why, is_sent);
        match status.code() {
            Some(CONNECTION | BEGUN) | None if !refused => {
                UploadError::lost(message, if progress { Lost::Progress } else { Lost::Nothing })
            }
            _ => UploadError::refused(message),
        }
    }

    fn message(&self, why: &str, is_sent: bool) -> String {
        let (url, path) = (&self.url, &self.file.path);
        let again =
            if self.begins_anew { "begins anew, since the dump is encrypted" } else { "continues there" };
        let kept = format!("; what was sent is in {path}.incomplete, and the same command {again}");
        format!("cannot write {url}: {why}{}", if is_sent { &kept } else { "" })
    }

    fn refused(&self, why: &str) -> UploadError {
        UploadError::refused(self.message(why, false))
    }

    fn exists(&self) -> UploadError {
        self.refused("there is a file of this name, and none is replaced; choose another")
    }

    fn odd(&self, answer: &[String]) -> UploadError {
        let answer = answer.join(" ").escape_debug().to_string();
        self.refused(&format!(
            "expected a shell with wc, head, dd and sha256sum there; it answers \"{answer}\""
        ))
    }

    fn unreadable(&self, error: &io::Error) -> UploadError {
        self.refused(&format!("the dump cannot be read: {error}"))
    }

    fn no_client(&self, error: &io::Error) -> UploadError {
        self.refused(&format!("cannot run the ssh client (PAGEHAUL_SSH names another): {error}"))
    }
}

/// The first bytes of a stream.
struct Start {
    bytes: u64,
    sum: String,
}

/// A stream that remembers the checksum of its first bytes.
struct Beginning<R> {
    inner: R,
    left: u64,
    sum: Sha256,
}

impl<R> Beginning<R> {
    fn start(self) -> Start {
        Start { bytes: FIRST - self.left, sum: hex(self.sum.finalize().as_slice()) }
    }
}

impl<R: Read> Read for Beginning<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let new = self.left.min(count as u64) as usize;
        self.sum.update(&buffer[..new]);
        self.left -= new as u64;
        Ok(count)
    }
}

/// What the unfinished file has of the stream.
enum Skipped {
    Same,
    /// Its first bytes differ. Those of the stream.
    OtherFromStart(Vec<u8>),
    Other,
}

/// Reads as many bytes as are there, and compares them by the checksums of the first ones and of all.
fn skip(stream: &mut impl Read, size: u64, sum: &str, whole_sum: &str) -> io::Result<Skipped> {
    let mut first = Vec::new();
    stream.take(size.min(FIRST)).read_to_end(&mut first)?;
    if hex(Sha256::digest(&first).as_slice()) != sum {
        return Ok(Skipped::OtherFromStart(first));
    }
    let mut whole = Sha256::new_with_prefix(&first);
    let mut left = size - first.len() as u64;
    let mut buffer = vec![0; 256 << 10];
    while left > 0 {
        let room = left.min(buffer.len() as u64) as usize;
        let count = stream.read(&mut buffer[..room])?;
        if count == 0 {
            return Ok(Skipped::Other);
        }
        whole.update(&buffer[..count]);
        left -= count as u64;
    }
    Ok(if hex(whole.finalize().as_slice()) == whole_sum { Skipped::Same } else { Skipped::Other })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads all, and keeps the first bytes.
fn text(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = (&mut pipe).take(MAX_MESSAGE).read_to_end(&mut bytes);
    let _ = io::copy(&mut pipe, &mut io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last line that is not empty, as it can be shown.
fn last_line(message: &str) -> Option<String> {
    let line = message.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.chars().filter(|character| !character.is_control()).take(300).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_are_parsed_or_refused() {
        let file =
            |host: &str, port, path: &str| Ok(RemotePath { host: host.into(), port, path: path.into() });
        assert_eq!(RemotePath::parse("ssh://host/a b/c'd"), file("host", None, "/a b/c'd"));
        assert_eq!(RemotePath::parse("ssh://root@10.0.2.2:2222/x"), file("root@10.0.2.2", Some(2222), "/x"));
        assert_eq!(RemotePath::parse("ssh://[fe80::1%eth0]:22/x"), file("fe80::1%eth0", Some(22), "/x"));
        for url in [
            "ssh://host",
            "ssh://host/",
            "ssh://host/directory/",
            "ssh:///x",
            "ssh://-oProxyCommand=id/x",
            "ssh://-l@host/x",
            "ssh://user:secret@host/x",
            "ssh://ho$(id)st/x",
            "ssh://host:x/y",
            "ssh://[::1]22/x",
            "ssh://host/a\nb",
        ] {
            assert!(RemotePath::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn what_is_there_is_compared() {
        let stream: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
        let sum = |bytes: &[u8]| hex(Sha256::digest(bytes).as_slice());
        let compare = |mut stream: &[u8], there: &[u8]| {
            let first = sum(&there[..there.len().min(FIRST as usize)]);
            let skipped = skip(&mut stream, there.len() as u64, &first, &sum(there)).unwrap();
            (skipped, stream.len())
        };
        for size in [1, 1000, 1 << 20, 2_000_000, 3_000_000] {
            let (skipped, left) = compare(&stream, &stream[..size]);
            assert!(matches!(skipped, Skipped::Same) && left == stream.len() - size, "{size}");
        }
        let mut other = stream.clone();
        other[10] ^= 1;
        let (Skipped::OtherFromStart(first), _) = compare(&stream, &other[..2_000_000]) else {
            panic!("the first bytes differ");
        };
        assert_eq!(first, &stream[..FIRST as usize]);
        other[10] ^= 1;
        other[1_500_000] ^= 1;
        let longer = [&stream[..], b"more"].concat();
        for other in [&other[..2_000_000], &longer] {
            assert!(matches!(compare(&stream, other).0, Skipped::Other));
        }
    }

    #[test]
    fn messages_are_one_line() {
        assert_eq!(last_line("Warning: added\r\nssh: \u{1b}[31mlost\n\n").as_deref(), Some("ssh: [31mlost"));
        assert_eq!(last_line("\n"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_shell_takes_a_quoted_word_as_it_is(word in "[ -~äß]{0,20}") {
            let line = format!("printf %s {}", quote(&word));
            let output = Command::new("sh").args(["-c", &line]).output().unwrap();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            if let Ok(file) = RemotePath::parse(&format!("ssh://{text}")) {
                prop_assert!(!file.host.starts_with('-') && file.path.starts_with('/'));
            }
        }
    }
}
