//! Stacks, each once: of CPUs, blocked tasks, holders of locks and all other tasks. Sections lead to them.

use std::collections::HashMap;

use maud::{Markup, html};
use pagehaul_inspect::{StackTrace, Task};
use pagehaul_present::flame::Folded;
use pagehaul_present::number::{count, counted};

use super::Page;
use super::words::{Index, at_most, one_line, pids, ranges};
use crate::triage::lines::INNERMOST;
use crate::triage::stack::stack_lines;

/// Stacks that are written in full. All are in the flame graphs.
const MOST: usize = 250;
/// Letters of the functions in a summary.
const SUMMARY: usize = 110;

/// All stacks.
#[derive(Default)]
pub(super) struct Stacks<'a> {
    known: Vec<Known<'a>>,
    by_frames: HashMap<Vec<u64>, usize>,
    of_task: HashMap<u32, usize>,
    of_cpu: HashMap<u64, usize>,
    /// Tasks whose stack is known, by state.
    states: HashMap<char, u64>,
}

/// A stack, and who has it.
struct Known<'a> {
    stack: &'a StackTrace,
    tasks: Vec<u32>,
    cpus: Vec<u64>,
    /// Whether it is written in full.
    shown: bool,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(page: &Page<'a>, index: &Index<'a>) -> Self {
        let report = page.report;
        let mut stacks = Self::default();
        for cpu in &report.cpus {
            let Some(at) = cpu.stack.as_ref().and_then(|stack| stacks.add(stack)) else { continue };
            stacks.of_cpu.insert(cpu.number, at);
            if let Some(known) = stacks.known.get_mut(at) {
                known.cpus.push(cpu.number);
            }
            // Idle tasks have no ID of their own.
            if let Some(task) = cpu.task.as_ref().filter(|task| task.pid != 0) {
                stacks.of(task.pid, at);
            }
        }
        for held in &report.locks.held {
            if let (Some((_, pid)), Some(stack)) = (&held.owner, &held.owner_stack) {
                stacks.of_stack(*pid, stack);
            }
        }
        for group in &report.blocked {
            group.pids.iter().for_each(|pid| stacks.of_stack(*pid, &group.stack));
        }
        let first = stacks.known.len();
        for task in page.stacks {
            if let Some(stack) = &task.stack {
                stacks.of_stack(task.pid, stack);
            }
        }
        // CPUs, holders and blocked tasks come first, then what most tasks have.
        let mut order: Vec<usize> = (0..stacks.known.len()).collect();
        order.sort_by_key(|at| {
            (*at >= first, std::cmp::Reverse(stacks.known.get(*at).map_or(0, |known| known.tasks.len())))
        });
        for at in order.into_iter().take(MOST) {
            if let Some(known) = stacks.known.get_mut(at) {
                known.shown = true;
            }
        }
        for pid in stacks.of_task.keys() {
            let state = index.task(*pid).map_or('?', |task| task.state);
            *stacks.states.entry(state).or_default() += 1;
        }
        stacks
    }

    fn add(&mut self, stack: &'a StackTrace) -> Option<usize> {
        if stack.frames.is_empty() {
            return None;
        }
        let frames = stack.frames.iter().map(|frame| frame.pc.0).collect();
        let next = self.known.len();
        let at = *self.by_frames.entry(frames).or_insert(next);
        if at == next {
            self.known.push(Known { stack, tasks: Vec::new(), cpus: Vec::new(), shown: false });
        }
        Some(at)
    }

    fn of_stack(&mut self, pid: u32, stack: &'a StackTrace) {
        if let Some(at) = self.add(stack) {
            self.of(pid, at);
        }
    }

    /// A task has one stack: the first that is known.
    fn of(&mut self, pid: u32, at: usize) {
        if self.of_task.contains_key(&pid) {
            return;
        }
        self.of_task.insert(pid, at);
        if let Some(known) = self.known.get_mut(at) {
            known.tasks.push(pid);
        }
    }

    /// The place of a task's stack.
    pub(super) fn place(&self, pid: u32) -> Option<String> {
        self.of_task.get(&pid).and_then(|at| self.place_of(*at))
    }

    /// The place of a CPU's stack.
    pub(super) fn place_of_cpu(&self, cpu: u64) -> Option<String> {
        self.of_cpu.get(&cpu).and_then(|at| self.place_of(*at))
    }

    fn place_of(&self, at: usize) -> Option<String> {
        self.known.get(at).filter(|known| known.shown).map(|_| format!("stack-{at}"))
    }

    /// The innermost functions of a task.
    pub(super) fn innermost(&self, pid: u32, most: usize) -> Option<String> {
        let known = self.of_task.get(&pid).and_then(|at| self.known.get(*at))?;
        Some(known.stack.innermost(most)).filter(|text| !text.is_empty())
    }

    /// The innermost functions of a task, which lead to its stack.
    pub(super) fn link(&self, pid: u32, most: usize, letters: usize) -> Markup {
        let text = self.innermost(pid, most).map(|text| at_most(&text, letters)).unwrap_or_default();
        html! {
            @match self.place(pid) {
                Some(place) if !text.is_empty() => a href=(format!("#{place}")) { (text) },
                _ => (text),
            }
        }
    }

    /// The section.
    pub(super) fn section(&self, index: &Index<'_>) -> Option<(String, Markup)> {
        if self.known.is_empty() {
            return None;
        }
        let blocked = self.folded(index, |task| task.state == 'D');
        let all = self.folded(index, |_| true);
        let has_others = self.states.keys().any(|state| *state != 'D');
        let mut shown: Vec<usize> =
            (0..self.known.len()).filter(|at| self.known.get(*at).is_some_and(|known| known.shown)).collect();
        shown.sort_by_key(|at| std::cmp::Reverse(self.known.get(*at).map_or(0, |known| known.tasks.len())));
        let hidden = self.known.len().saturating_sub(shown.len());
        let body = html! {
            @if !blocked.is_empty() { h3 { "Blocked tasks (D)" } (blocked.figure("task")) }
            @if !all.is_empty() && has_others { h3 { "All tasks" } (all.figure("task")) }
            h3 { (counted(self.known.len() as u64, "stack")) }
            @for at in shown { @if let Some(known) = self.known.get(at) { (one(at, known, index)) } }
            @if hidden > 0 {
                p.about { (count(hidden as u64)) " more, which fewer tasks have, are in the graphs alone: pagehaul triage DUMP --stacks" }
            }
        };
        let about = "Outermost functions are at the top; a box is as wide as the share of tasks whose stack passes it. Click a box \
                     to enlarge it, the topmost to see all.";
        Some((about.into(), body))
    }

    fn folded(&self, index: &Index<'_>, of: impl Fn(&Task) -> bool) -> Folded {
        let mut folded = Folded::default();
        for known in &self.known {
            let tasks = known.tasks.iter().filter(|pid| index.task(**pid).is_some_and(&of)).count() as u64;
            if tasks > 0 {
                let names: Vec<String> = known.stack.functions().map(one_line).collect();
                folded.add(names.iter().rev().map(String::as_str), tasks);
            }
        }
        folded
    }
}

fn one(at: usize, known: &Known<'_>, index: &Index<'_>) -> Markup {
    let mut whose = Vec::new();
    match known.tasks.as_slice() {
        [] => {}
        [pid] => whose.push(index.task(*pid).map_or_else(|| pid.to_string(), Task::label)),
        several => whose.push(counted(several.len() as u64, "task")),
    }
    if !known.cpus.is_empty() {
        whose.push(format!("CPU {}", ranges(known.cpus.iter().copied())));
    }
    let mut frames = String::new();
    stack_lines(known.stack, &mut frames);
    let innermost = at_most(&known.stack.innermost(INNERMOST), SUMMARY);
    html! {
        details.stack id=(format!("stack-{at}")) {
            summary { b { (one_line(&whose.join(", "))) } " " span.functions { (innermost) } }
            pre { (frames.trim_end()) }
            @if known.tasks.len() > 1 { p.about { "PIDs " (pids(known.tasks.iter().copied())) } }
        }
    }
}
