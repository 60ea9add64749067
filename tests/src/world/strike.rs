//! Faults strike, and are over.

use crate::kernel::span::Nanos;
use crate::world::env::{Event, Input};
use crate::world::fault::What;
use crate::world::run::{Machine, World};

impl World {
    pub(super) fn strike(&mut self, number: usize) {
        let fault = self.env.scenario.faults[number];
        self.faults += 1;
        self.env.note_world(&[30, number as u64], || format!("{:?}", fault.what));
        self.env.events.push(self.env.now + fault.lasts, Event::Heal(number));
        match fault.what {
            What::Kill(process) => self.take_down(process, false),
            What::Vanish(process) => self.take_down(process, true),
            What::Freeze(process) => {
                for host in self.hosts_of(process) {
                    self.nodes[host.0].frozen += 1;
                }
            }
            What::Leave(process) => self.leave(process, fault.lasts),
            What::Sip(process) => {
                for host in self.hosts_of(process) {
                    self.nodes[host.0].sips += 1;
                }
            }
            What::Cut(a, b) => self.cut(a, b),
            What::Block(from, to) => self.block(from, to),
            What::Part(a, b) => {
                self.block(a, b);
                self.block(b, a);
            }
            What::Slow(process, percent) => self.set_slow(process, percent),
            What::FallBehind(process, nanos) => self.set_behind(process, nanos),
            What::SlowNet(process, percent) => self.set_slow_net(process, percent),
            What::Forge(process) => {
                for host in self.hosts_of(process) {
                    match &mut self.nodes[host.0].machine {
                        Machine::Server(server) => server.forge(&mut self.env),
                        Machine::Client(client) => client.forge(&mut self.env),
                        Machine::Dead { .. } => {}
                    }
                }
            }
            What::Burst(client, calls) => {
                for host in self.hosts_of(client) {
                    let life = self.nodes[host.0].life;
                    (0..calls).for_each(|_| self.give(host, life, Input::Call { probe: false }));
                }
            }
        }
    }

    pub(super) fn heal(&mut self, number: usize) {
        let fault = self.env.scenario.faults[number];
        self.healed += 1;
        self.env.note_world(&[31, number as u64], || format!("{:?} is over", fault.what));
        match fault.what {
            What::Sip(process) => {
                for host in self.hosts_of(process) {
                    self.nodes[host.0].sips -= 1;
                }
            }
            What::Kill(process) | What::Vanish(process) | What::Leave(process) => {
                if matches!(fault.what, What::Leave(_)) {
                    self.take_down(process, false);
                }
                for host in self.hosts_of(process) {
                    self.nodes[host.0].down -= 1;
                    if self.nodes[host.0].down == 0 {
                        self.bring_up(host);
                    }
                }
            }
            What::Freeze(process) => {
                for host in self.hosts_of(process) {
                    self.nodes[host.0].frozen -= 1;
                    self.nodes[host.0].thawed = self.env.now;
                    self.want_turn(host);
                }
            }
            What::Block(from, to) => self.unblock(from, to),
            What::Part(a, b) => {
                self.unblock(a, b);
                self.unblock(b, a);
            }
            What::Slow(process, _) => self.set_slow(process, 100),
            What::FallBehind(process, _) => self.set_behind(process, 0),
            What::SlowNet(process, _) => self.set_slow_net(process, 100),
            What::Cut(..) | What::Burst(..) | What::Forge(_) => {}
        }
    }

    /// A server takes on nothing new, and asks to be spared.
    fn leave(&mut self, process: usize, within: Nanos) {
        for host in self.hosts_of(process) {
            if let Machine::Server(server) = &mut self.nodes[host.0].machine {
                self.env.held.drained += server.stats().held;
                server.leave(self.env.now, within);
            }
            self.want_turn(host);
        }
    }

    fn take_down(&mut self, process: usize, silent: bool) {
        for host in self.hosts_of(process) {
            let client = self.is_client(host);
            let node = &mut self.nodes[host.0];
            node.down += 1;
            match std::mem::replace(&mut node.machine, Machine::Dead { silent }) {
                Machine::Server(server) => self.env.dead_servers.push(server.stats()),
                Machine::Client(client) => self.env.dead_clients.push(client.counters()),
                Machine::Dead { .. } => {}
            }
            node.life += 1;
            node.inbox.clear();
            node.turn_due = false;
            node.wake = None;
            for (wire, end) in self.env.net.wires_of(host) {
                if silent {
                    self.env.net.vanish(wire, end);
                } else {
                    self.env.close(wire, end);
                }
            }
            if client {
                self.env.book.client_died(host);
            } else {
                self.env.book.server_died(host);
            }
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        for a in self.hosts_of(a) {
            for b in self.hosts_of(b) {
                for wire in self.env.net.wires_between(a, b) {
                    let told = self.env.net.cut(wire, self.env.now);
                    told.into_iter().for_each(|due| self.env.schedule(due));
                }
            }
        }
    }

    fn block(&mut self, from: usize, to: usize) {
        for from in self.hosts_of(from) {
            for to in self.hosts_of(to) {
                self.env.net.block(from, to);
            }
        }
    }

    fn unblock(&mut self, from: usize, to: usize) {
        for from in self.hosts_of(from) {
            for to in self.hosts_of(to) {
                let due = self.env.net.unblock(from, to, self.env.now);
                due.into_iter().for_each(|due| self.env.schedule(Some(due)));
            }
        }
    }

    fn set_behind(&mut self, process: usize, nanos: Nanos) {
        for host in self.hosts_of(process) {
            self.nodes[host.0].behind = nanos;
            if let Machine::Server(server) = &mut self.nodes[host.0].machine {
                server.behind = nanos;
            }
        }
    }

    fn set_slow_net(&mut self, process: usize, percent: u64) {
        for host in self.hosts_of(process) {
            self.env.net.set_slow_net(host, percent);
        }
    }

    fn set_slow(&mut self, process: usize, percent: u64) {
        for host in self.hosts_of(process) {
            self.nodes[host.0].slow = percent;
            if let Machine::Server(server) = &mut self.nodes[host.0].machine {
                server.slow = percent;
            }
        }
    }
}
