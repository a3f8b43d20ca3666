//! Redacts the sections of a report that are read on request. Labels of tasks in them come from tasks that are redacted.

use pagehaul_inspect::{
    Counts, Interrupt, Interrupts, Ipc, Mount, Mounts, OnRequest, PoolWorkqueue, Pressures, Rcu, Signals,
    Socket, Sockets, Swap, SwapDevice, Timers, Workqueues,
};

use crate::allowed::is_device;
use crate::names::Names;
use crate::{Redaction, report::identifier};

impl Redaction {
    /// Redacts what was read besides a report, whose names are given. Functions, types of file systems and interrupt controllers
    /// keep theirs; numbers are no names.
    pub fn on_request(&self, found: &mut OnRequest, names: &Names) {
        let OnRequest {
            timers,
            interrupts,
            workqueues,
            rcu,
            signals,
            counts,
            pressure,
            sockets,
            mounts,
            swap,
            ipc,
        } = found;
        let mut broken = Vec::new();
        if let Some(Timers { all: _, broken: whys }) = timers {
            broken.push(whys);
        }
        if let Some(Interrupts { all, cpus: _, broken: whys }) = interrupts {
            for Interrupt { number: _, address: _, chip: _, actions, disabled: _, by_cpu: _ } in all {
                // Drivers add names of devices, which people can choose.
                actions.iter_mut().for_each(|name| *name = self.kernel_name(name));
            }
            broken.push(whys);
        }
        if let Some(Workqueues { count: _, pools: _, busy, broken: whys }) = workqueues {
            for PoolWorkqueue { name, pool: _, address: _, active: _, inactive: _ } in busy {
                *name = self.kernel_name(name);
            }
            broken.push(whys);
        }
        if let Some(Rcu {
            name: _,
            address: _,
            sequence: _,
            runs: _,
            runs_for: _,
            cpus: _,
            tasks: _,
            thread: _,
            callbacks: _,
            broken: whys,
        }) = rcu
        {
            broken.push(whys);
        }
        if let Some(Signals { all: _, broken: whys }) = signals {
            broken.push(whys);
        }
        if let Some(Counts { tasks: _, processes: _, by_name: _, by_parent: _, broken: whys }) = counts {
            broken.push(whys);
        }
        if let Some(Pressures { all: _, tasks: _, measured: _, broken: whys }) = pressure {
            broken.push(whys);
        }
        if let Some(Sockets { all, broken: whys }) = sockets {
            all.iter_mut().for_each(|socket| self.socket(socket));
            broken.push(whys);
        }
        if let Some(Mounts { namespaces: _, all, broken: whys }) = mounts {
            all.iter_mut().for_each(|mount| self.mount(mount));
            broken.push(whys);
        }
        if let Some(Swap { devices, broken: whys }) = swap {
            for SwapDevice { address: _, name, pages: _, used: _, priority: _, writable: _ } in devices {
                *name = self.name("path", name);
            }
            broken.push(whys);
        }
        if let Some(Ipc { objects: _, broken: whys }) = ipc {
            broken.push(whys);
        }
        for whys in broken {
            whys.iter_mut().for_each(|why| *why = self.sentence(why, names));
        }
    }

    fn socket(&self, socket: &mut Socket) {
        let Socket {
            address: _,
            family,
            protocol: _,
            state: _,
            local,
            remote,
            received: _,
            to_send: _,
            backlog: _,
            process: _,
            holders: _,
        } = socket;
        let kind = if family.starts_with("IP") { "ip" } else { "path" };
        for end in [local, remote].into_iter().flatten() {
            *end = self.name(kind, end);
        }
    }

    fn mount(&self, mount: &mut Mount) {
        let Mount { namespace: _, point, device, kind, read_only: _, frozen: _, address: _, super_block: _ } =
            mount;
        *point = self.name("path", point);
        // /dev/sda1, or what the file system is called.
        let plain = device.strip_prefix("/dev/").unwrap_or(device);
        if !is_device(plain) && device != kind {
            *device = self.name("path", device);
        }
        *kind = identifier(kind);
    }
}
