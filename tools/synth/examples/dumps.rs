//! Writes dumps of one small machine in several formats, of a crash of every kernel era in `crashes`, and of an oops of two machines in
//! `hosts`: `dumps DIRECTORY`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use pagehaul_synth::{Content, Era, Inside, Machine, Message, Records, Task, flatten};

/// What a kernel prints that dies on its own.
const OOPS: [&str; 4] = [
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "CPU: 0 PID: 20 Comm: writer Not tainted 6.12.0",
    "RIP: 0010:demo_fill+0x5/0x40 [demo]",
    "Kernel panic - not syncing: Fatal exception",
];

fn main() -> std::io::Result<ExitCode> {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: dumps DIRECTORY");
        return Ok(ExitCode::from(2));
    };
    let path = |name: &str| Path::new(&directory).join(name);
    let mut machine = Machine::new(Era::V6_12);
    machine.kaslr(0x1a00_0000).sampler(0x4000).slab(0x4800, 2).fill(0x4800, Content::Text);
    // 2 MiB of kernel memory that every level keeps.
    for pfn in (0x4a00..0x4c00).step_by(2) {
        machine.slab(pfn, 1).fill(pfn, Content::Text).fill(pfn + 1, Content::Random);
    }
    let text = "Kernel panic - not syncing: sysrq triggered crash";
    machine.log(0x6000, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
    let stack = vec!["__schedule", "schedule", "io_schedule"];
    let task = Task { pid: 20, comm: "writer".into(), state: 2, ran: 1, stack, pages: Some(100) };
    let inside = Inside {
        tasks: vec![task],
        clock: 60,
        free: 1 << 17,
        caches: vec![("dentry", 400, 8_400)],
        areas: vec![("vmalloc", 65_536)],
        modules: vec![("ext4", 1 << 20)],
        ..Inside::default()
    };
    machine.inside(0x5000, &inside);
    let image = machine.build();
    image.elf().write(&path("vmcore"))?;
    let mut dump = image.kdump();
    let bytes = dump.level(31).mixed().bytes();
    fs::write(path("dump"), &bytes)?;
    fs::write(path("flattened"), flatten(&bytes, 5000, Records::Ascending))?;
    fs::write(path("truncated"), &bytes[..bytes.len() / 2])?;
    for (number, part) in dump.parts(2).iter().enumerate() {
        fs::write(path(&format!("part.{number}")), part)?;
    }
    fs::create_dir_all(path("crashes"))?;
    for era in Era::ALL {
        let mut machine = Machine::new(era);
        machine.log(0x6000, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
        machine.inside(0x5000, &inside);
        machine.build().kdump().level(31).write(&path("crashes").join(era.release()))?;
    }
    for (host, era) in [("web1", Era::V6_12), ("web2", Era::V6_1)] {
        let mut machine = Machine::new(era);
        let message = |(nanoseconds, text)| Message { nanoseconds, level: 1, caller: 7, text };
        machine.log(0x6000, &[(1, OOPS[0]), (2, OOPS[1]), (3, OOPS[2]), (4, OOPS[3])].map(message));
        machine.inside(0x5000, &inside);
        let image = machine.build();
        let directory = path("hosts").join(host);
        fs::create_dir_all(&directory)?;
        image.kdump().level(31).write(&directory.join("dump"))?;
        for (number, part) in image.kdump().parts(2).iter().enumerate() {
            fs::write(directory.join(format!("part.{number}")), part)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
