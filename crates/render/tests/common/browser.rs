//! Chromium, driven by its DevTools protocol over two pipes: JSON messages, each followed by a NUL.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The browser reads commands from descriptor 3 and answers on 4.
const START: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// A browser with one page.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    /// What the page logged and what failed in it.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts the browser that `PAGEHAUL_CHROMIUM` names, or `chromium`, with its profile in a directory.
    pub fn start(profile: &Path) -> Self {
        let program = std::env::var("PAGEHAUL_CHROMIUM").unwrap_or_else(|_| "chromium".into());
        let mut child = Command::new("sh")
            .args(["-c", START, "sh", &program, "--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--no-first-run", "--disable-extensions"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let (commands, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let answers = BufReader::new(answers);
        let mut browser = Self { child, commands, answers, session: None, last: 0, complaints: Vec::new() };
        let targets = browser.call("Target.getTargets", json!({}));
        let pages = targets["targetInfos"].as_array().unwrap();
        let page = pages.iter().find(|target| target["type"] == "page").expect("a page is open");
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    /// Calls a method, and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(message.to_string().as_bytes()).unwrap();
        self.commands.write_all(&[0]).unwrap();
        self.read(|message| message["id"] == id)["result"].take()
    }

    /// Reads messages until one is awaited.
    fn read(&mut self, awaited: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut bytes = Vec::new();
            self.answers.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser ended: is it installed? scripts/setup.sh browser");
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            let method = message["method"].as_str().unwrap_or_default();
            if matches!(method, "Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled") {
                self.complaints.push(message["params"].to_string());
            }
            assert!(message.get("error").is_none(), "{message}");
            if awaited(&message) {
                return message;
            }
        }
    }

    /// Opens a file, and waits until it is loaded.
    pub fn open(&mut self, file: &Path) {
        // Else a load event of the page before could be awaited.
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while self.ask("document.readyState") != "complete" {}
    }

    /// Evaluates an expression in the page.
    pub fn ask(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Moves the mouse to the element that an expression returns, and clicks it.
    pub fn click(&mut self, element: &str) {
        let place = self.ask(&format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{ block: 'center', inline: 'nearest', behavior: 'instant' }}); \
             const box = e.getBoundingClientRect(); return [box.x + Math.min(box.width / 2, 20), box.y + box.height / 2]; }})()"
        ));
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event =
                json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Types text where the focus is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
