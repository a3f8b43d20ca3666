//! A report of a machine that never was: a deadlock, tasks that wait behind it, CPUs without ticks, and hostile names.

use pagehaul_facts::Kind;
use pagehaul_inspect::{
    Cpu, Death, FrameName, Gaps, Held, Hex, LastLine, Locks, LogLine, Memory, Net, OnRequest, StackGroup,
    StackTrace, System, Task, TaskStack, Tasks, TriageReport, Wait, group,
};
use pagehaul_machine::{PageCount, PageSize};
use pagehaul_render::triage::{Page, page};

/// What would become markup, script or a line of ours if it were not escaped.
pub const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\u{2028}'\"\nVerdict\u{1b}[2J\u{202e}";

pub fn stack(functions: &[&str]) -> StackTrace {
    let frames = functions.iter().enumerate().map(|(at, function)| FrameName {
        pc: Hex(0xffff_ffff_8100_0000 + function.bytes().map(u64::from).sum::<u64>() * 0x100 + at as u64),
        sp: Hex(0),
        function: (*function).to_owned(),
        name: format!("{function}+0x10/0x20"),
        module: None,
        guess: false,
        interrupted: false,
    });
    StackTrace { frames: frames.collect(), end: "user mode", complete: true }
}

pub fn task(pid: u32, comm: &str, state: char) -> Task {
    Task {
        address: Hex(0xffff_8880_0000_0000 + u64::from(pid) * 0x1000),
        pid,
        tgid: pid,
        ppid: 1,
        comm: comm.to_owned(),
        state,
        kernel_thread: false,
        cpu: u64::from(pid % 4),
        seconds_since_run: Some(f64::from(pid) / 10.0),
        mm: Hex(0),
        flags: Hex(0),
        reclaims: false,
    }
}

fn cpu(number: u64, task: Task, functions: &[&str]) -> Cpu {
    Cpu {
        number,
        idle: task.pid == 0,
        task: Some(task),
        pid: None,
        runnable: Some(1),
        saved_registers: true,
        user_mode: false,
        interrupts_on: Some(number != 1),
        seconds_without_tick: (number == 1).then_some(26.5),
        pending_calls: Vec::new(),
        crashed: number == 0,
        registers: Vec::new(),
        stack: Some(stack(functions)),
    }
}

fn held(name: &str, owner: (&str, u32), waiters: impl IntoIterator<Item = u32>) -> Held {
    Held {
        lock: Some(Hex(0xffff_8881_0000_0000)),
        kind: "mutex",
        name: name.to_owned(),
        owner: Some((owner.0.to_owned(), owner.1)),
        owner_is_hint: false,
        owner_stack: Some(stack(&["schedule", "mutex_lock", owner.0, "do_syscall_64"])),
        readers: None,
        waiters: waiters
            .into_iter()
            .map(|pid| Wait { pid, comm: "waiter".into(), seconds: Some(f64::from(pid)) })
            .collect(),
    }
}

pub fn line(seconds: f64, text: &str) -> LogLine {
    LogLine { seconds, text: text.to_owned(), by_kernel: true }
}

/// What a page is made of.
pub struct Crash {
    pub report: TriageReport,
    pub stacks: Vec<TaskStack>,
    pub log: Vec<LastLine>,
}

impl Crash {
    pub fn page(&self) -> String {
        let on_request = OnRequest::default();
        let of = Page {
            report: &self.report,
            on_request: &on_request,
            stacks: &self.stacks,
            log: &self.log,
            memory: None,
        };
        page(&of, "dump")
    }
}

/// A crash of a machine with these tasks, in addition to seven of a deadlock: `left` and `right` wait for each other.
pub fn crash(others: Vec<Task>, stack_of: impl Fn(&Task) -> Option<StackTrace>) -> Crash {
    let mut all = vec![task(1, "init", 'S'), task(10, "left", 'D'), task(11, "right", 'D')];
    all.extend([20, 21, 22, 23].map(|pid| task(pid, "waiter", 'D')));
    all.push(task(30, HOSTILE, 'R'));
    let waits = |name: &str| stack(&["__schedule", "schedule", "mutex_lock", name, "do_syscall_64"]);
    let mut stacks: Vec<TaskStack> = all
        .iter()
        .map(|task| TaskStack { pid: task.pid, stack: Some(waits(&task.comm)), missing: None })
        .collect();
    stacks.extend(others.iter().map(|task| TaskStack {
        pid: task.pid,
        stack: stack_of(task),
        missing: None,
    }));
    all.extend(others);
    let blocked: Vec<(&Task, StackTrace)> = all
        .iter()
        .zip(&stacks)
        .filter(|(task, stack)| task.state == 'D' && stack.stack.is_some())
        .take(10_000)
        .filter_map(|(task, stack)| Some((task, stack.stack.clone()?)))
        .collect();
    let blocked: Vec<StackGroup> = group(blocked);
    let mut tasks = Tasks::default();
    tasks.all = all;
    let panic = line(100.5, "Kernel panic - not syncing: hung_task: blocked tasks");
    let last = |line: LogLine, important| LastLine { line, important };
    let log: Vec<LastLine> = (0..40)
        .map(|at| last(line(f64::from(at), &format!("usb 1-{at}: new device")), false))
        .chain([last(line(99.0, &format!("oom: {HOSTILE}")), true), last(panic.clone(), true)])
        .collect();
    let states =
        "RSD".chars().map(|state| (state, tasks.all.iter().filter(|task| task.state == state).count()));
    let mut report = TriageReport {
        system: System {
            release: "6.12.0".into(),
            version: None,
            hostname: Some(HOSTILE.into()),
            crash_time: Some(1_750_000_000),
            uptime: Some(101.0),
            load: None,
            page_size: PageSize::KIB_4,
            cpus: Some(4),
            command_line: Some(HOSTILE.into()),
            taints: Vec::new(),
        },
        death: Death {
            kind: Some(Kind::HungTask),
            line: Some(panic),
            task: Some(("left".into(), 10)),
            ..Death::default()
        },
        cause: waits("left").frames,
        crash: None,
        symbols_known: true,
        signature: None,
        verdict: Vec::new(),
        cpus: vec![
            cpu(0, task(0, "swapper/0", 'R'), &["panic", "watchdog"]),
            cpu(1, task(30, HOSTILE, 'R'), &["spin", "do_syscall_64"]),
            cpu(2, task(0, "swapper/2", 'R'), &["default_idle", "cpu_startup_entry"]),
            cpu(3, task(0, "swapper/3", 'R'), &["default_idle", "cpu_startup_entry"]),
        ],
        states: states.collect(),
        blocked,
        workers: Vec::new(),
        locks: Locks {
            held: vec![
                held("of left", ("left", 10), [11]),
                held("of right", ("right", 11), [10, 20, 21, 22, 23]),
                held(HOSTILE, ("init", 1), [40]),
            ],
            cycles: vec![vec![10, 11]],
            unknown: Vec::new(),
            kinds: vec!["mutex"],
            missing: Vec::new(),
        },
        memory: Memory {
            usage: vec![
                ("anonymous", PageCount::new(100_000)),
                ("slab and large kmalloc", PageCount::new(50_000)),
                ("free", PageCount::new(90_000)),
            ],
            unaccounted: Some(22_144),
            ..Memory::default()
        },
        slab: Vec::new(),
        vmalloc: None,
        requests: Vec::new(),
        suspended: Vec::new(),
        net: Net::default(),
        modules: Vec::new(),
        modules_known: true,
        running: false,
        log: log.iter().rev().take(12).rev().cloned().collect(),
        missing: vec![format!("locks: {HOSTILE}")],
        gaps: Gaps::default(),
        tasks,
    };
    report.judge();
    Crash { report, stacks, log }
}
