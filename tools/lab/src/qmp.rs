//! A client of QEMU's control socket (QMP).

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection after the handshake.
pub struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Qmp {
    /// Connects to the socket, which exists once QEMU runs its guest.
    pub fn connect(path: &Path) -> Result<Qmp> {
        let stream =
            UnixStream::connect(path).with_context(|| format!("QEMU's socket {}", path.display()))?;
        let writer = stream.try_clone().context("QEMU's socket")?;
        let mut qmp = Qmp { reader: BufReader::new(stream), writer };
        qmp.limit(Duration::from_secs(30))?;
        qmp.read()?;
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Sets the time limit for answers.
    pub fn limit(&self, limit: Duration) -> Result<()> {
        self.reader.get_ref().set_read_timeout(Some(limit)).context("QEMU's socket")
    }

    /// Executes a command and returns its result.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.writer, "{request}").with_context(|| format!("sending {command} to QEMU"))?;
        loop {
            let answer = self.read().with_context(|| format!("waiting for QEMU's answer to {command}"))?;
            if let Some(result) = answer.get("return") {
                return Ok(result.clone());
            }
            if let Some(error) = answer.get("error") {
                let text = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
                bail!("QEMU rejects {command}: {text}");
            }
            // Anything else is an event.
        }
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("QEMU closed its socket");
        }
        serde_json::from_str(&line).with_context(|| format!("QEMU's answer {}", line.trim()))
    }
}
