//! Checkpoints of one process, each based on the one before, with the stand-in for CRIU.

// Not every test uses all of it.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::criu::{said, with_criu};
use super::subject::Subject;

/// Checkpoints of one process, named by numbers, and its memory at each.
pub struct Generations {
    pub directory: TempDir,
    pub subject: Option<Subject>,
    pub tree: String,
}

impl Generations {
    pub fn new(arguments: &[&str]) -> Self {
        let subject = Subject::start(arguments);
        Self { directory: tempdir().unwrap(), tree: subject.pid(), subject: Some(subject) }
    }

    pub fn path(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("{number}.ckpt"))
    }

    pub fn memory(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("{number}.memory"))
    }

    /// Takes the next one, based on another.
    pub fn command(&self, number: usize, base: Option<&Path>, options: &[&str]) -> Command {
        let mut command = with_criu("checkpoint");
        command.args(["--leave-running", "--json", &self.tree]).arg(self.path(number)).args(options);
        command.env("PAGES", "0");
        command.env("TREE", &self.tree).env("MEMORY", self.memory(number));
        if let Some(base) = base {
            command.arg("--base").arg(base);
        }
        command
    }

    pub fn take(&self, number: usize, base: Option<&Path>, options: &[&str]) -> Value {
        let output = self.command(number, base, options).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// As many as wanted, each based on the one before.
    pub fn take_all(&self, count: usize, options: &[&str]) -> Vec<Value> {
        (0..count)
            .map(|number| {
                let base = number.checked_sub(1).map(|number| self.path(number));
                self.take(number, base.as_deref(), options)
            })
            .collect()
    }

    pub fn end(&mut self) {
        self.subject = None;
    }

    /// Returns what a restart said, and whether it has touched anything.
    pub fn restart(&self, number: usize) -> (Output, bool) {
        self.restart_with(number, &[])
    }

    pub fn restart_with(&self, number: usize, options: &[&str]) -> (Output, bool) {
        let marker = self.directory.path().join("marker");
        let _ = fs::remove_file(&marker);
        let mut command = with_criu("restart");
        command
            .args(options)
            .arg(self.path(number))
            .env("TREE", &self.tree)
            .env("RESTARTED", &marker)
            .env("PAGES", "0");
        let output = command.env("MEMORY", self.memory(number)).output().unwrap();
        (output, marker.exists())
    }

    /// Restarts one and compares its memory with what the stand-in saw.
    pub fn restarts_exactly(&self, number: usize) {
        self.restarts_exactly_with(number, &[]);
    }

    pub fn restarts_exactly_with(&self, number: usize, options: &[&str]) {
        let (output, _) = self.restart_with(number, options);
        assert!(output.status.success(), "{}", said(&output));
        let differences = fs::read_to_string(self.memory(number).with_extension("differences")).unwrap();
        assert_eq!(differences, "", "of generation {number}");
    }

    pub fn files(&self) -> usize {
        fs::read_dir(self.directory.path()).unwrap().count()
    }
}
