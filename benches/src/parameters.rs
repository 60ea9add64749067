//! What a run was made with, as a report shows it.

use core::time::Duration;

use bowline_runtime::clock;

use crate::cli::{CompareArgs, Copies, FaultArgs, LoadArgs, LoadShape, PolicyArgs, SimulateArgs};
use crate::faults::Pattern;
use crate::model::{ModelSpec, show_span};
use crate::policies::show_budget;
use crate::simulate::Setting;
use crate::units::{show_duration, show_size, three_digits};

/// A list of names and values.
pub type Parameters = Vec<(String, String)>;

/// Those of a comparison.
pub fn of_compare(args: &CompareArgs, clock: clock::Source) -> Parameters {
    let mut list = of_calls(&args.load, args.duration);
    list.push(("rounds".into(), args.rounds.to_string()));
    list.extend(of_policies(&args.policy));
    let replicas = match args.replicas.as_slice() {
        [] if args.no_mesh => {
            "processes of their own on loopback, without links to each other".into()
        }
        [] => "processes of their own on loopback".to_owned(),
        given => given.join(", "),
    };
    list.push(("replicas".into(), replicas));
    list.push(("data".into(), format!("{} a replica", show_size(args.replica.data_size))));
    if args.replicas.is_empty() {
        let how = &args.replica;
        list.push(("slots a replica".into(), how.slots.to_string()));
        list.push(("queue a replica".into(), how.queue.to_string()));
        let device = format!(
            "the device's own + log-normal, mean {}, sigma {}",
            show_duration(how.service),
            how.service_spread
        );
        list.push(("service time".into(), device));
        list.push(("stalls".into(), stalls(&args.faults)));
    } else {
        list.push(("stalls".into(), "none are made on replicas that run already".into()));
    }
    list.extend(of_process(clock));
    list
}

/// Those of a load on replicas that run already.
pub fn of_load(args: &LoadArgs, clock: clock::Source) -> Parameters {
    let mut list = of_calls(&args.load, args.duration);
    list.extend(of_policies(&args.settings));
    list.push(("replicas".into(), args.replicas.join(", ")));
    list.push(("data".into(), format!("{} a replica", show_size(args.data_size))));
    list.extend(of_process(clock));
    list
}

/// Those of a simulation.
pub fn of_simulation(args: &SimulateArgs, setting: &Setting) -> Parameters {
    let stalls = match args.faults.faults.pattern() {
        Pattern::Off => "none".to_owned(),
        _ => {
            let kinds: Vec<String> = args.fault_kinds.iter().map(ToString::to_string).collect();
            format!("{}; {}", stalls(&args.faults), kinds.join(", "))
        }
    };
    let mut list = of_world(setting);
    let budgets: Vec<String> = args.sweep.budgets.iter().map(|&it| show_budget(it)).collect();
    list.push(("budget".into(), budgets.join("; ")));
    list.push(("stalls".into(), stalls));
    list.push(("calls".into(), format!("{} a policy and round", args.calls)));
    list.push(("rounds".into(), args.rounds.to_string()));
    list
}

/// Those of a cluster in virtual time.
pub fn of_world(setting: &Setting) -> Parameters {
    let args = &setting.args;
    let copies = match args.copies {
        Copies::Independent => "each takes a time of its own",
        Copies::Identical => "all of a call take equally long",
    };
    let stop = if args.interruptible { "stop when told" } else { "run to their end" };
    let load =
        format!("{} /s, {:.1} % of the slots", three_digits(setting.rate), 100.0 * setting.load());
    let waited = match args.service {
        ModelSpec::Histogram { .. } => " (what its calls waited for counts as service)",
        ModelSpec::Known(_) | ModelSpec::Trace { .. } => "",
    };
    vec![
        ("replicas".into(), args.replicas.to_string()),
        ("slots a replica".into(), args.slots.to_string()),
        ("queue a replica".into(), args.queue.to_string()),
        ("rate".into(), load),
        ("arrivals".into(), "Poisson, open loop".into()),
        ("service time".into(), format!("{}{waited}", args.service)),
        ("copies".into(), format!("{copies}; those that run {stop}")),
        ("network".into(), format!("{} one way", show_span(&args.network))),
        ("deadline".into(), show_duration(args.deadline)),
        ("first replica".into(), args.pick.to_string()),
    ]
}

fn stalls(faults: &FaultArgs) -> String {
    format!(
        "{}, of {} on average, {} apart",
        faults.faults,
        show_duration(faults.stall),
        show_duration(faults.stall_gap)
    )
}

fn of_calls(load: &LoadShape, duration: Duration) -> Parameters {
    let arrivals = match load.burst.get() {
        1 => "Poisson, open loop".to_owned(),
        size => format!("bursts of {size}, open loop"),
    };
    vec![
        ("rate".into(), format!("{} /s", load.rate)),
        ("arrivals".into(), arrivals),
        ("deadline".into(), show_duration(load.deadline)),
        ("duration".into(), show_duration(duration)),
        ("warm-up".into(), format!("{} a policy", show_duration(load.warmup))),
    ]
}

fn of_policies(policy: &PolicyArgs) -> Parameters {
    let delay = match policy.hedge_delay {
        Some(delay) => show_duration(delay),
        None => format!("live p{} of attempts", 100.0 * policy.hedge_percentile),
    };
    let stagger = match policy.stagger {
        Some(stagger) => show_duration(stagger),
        None => "twice the measured one-way delay".into(),
    };
    vec![
        ("first replica".into(), policy.pick.to_string()),
        ("hedge delay".into(), delay),
        ("budget".into(), show_budget(policy.budget)),
        ("stagger".into(), stagger),
    ]
}

fn of_process(clock: clock::Source) -> Parameters {
    vec![
        ("pinning".into(), "none: the kernel places client and replicas".into()),
        ("event loops".into(), "asleep when idle; one thread each".into()),
        ("client's clock".into(), format!("{:?}", clock)),
    ]
}
