//! `bowline load`: one policy against replicas that run already.

use std::time::SystemTime;

use bowline_runtime::Runtime;

use crate::cli::LoadArgs;
use crate::compare::resolve_all;
use crate::course::Course;
use crate::data::DataSet;
use crate::faults::{Pattern, StallModel};
use crate::interrupt::Interrupt;
use crate::parameters;
use crate::report::{Folder, Origin, Report};
use crate::run::{RunEnd, RunError, Session, Setting, load, publish};
use crate::setup::Machine;

/// Sends the calls and reports.
///
/// # Errors
/// [`RunError`]
pub fn run(args: &LoadArgs) -> Result<RunEnd, RunError> {
    let interrupt = Interrupt::on_signals().map_err(RunError::Signals)?;
    let started = SystemTime::now();
    let folder = args.out.as_deref().map(Folder::open).transpose()?;
    let runtime = Runtime::builder().build()?;
    let set = DataSet::of_size(args.load.seed, args.data_size);
    let addresses = resolve_all(&args.replicas)?;
    let policies = vec![args.policy];
    let setting = Setting {
        addresses: &addresses,
        cluster: None,
        policies: &policies,
        args: &args.settings,
        load: &args.load,
        set,
        interrupt: interrupt.clone(),
    };
    let mut session = Session::begin(runtime, setting)?;
    let course = Course {
        policies: policies.clone(),
        rounds: 1,
        seed: args.load.seed,
        load: load(&args.load, args.duration, &set),
        stalls: StallModel {
            pattern: Pattern::Off,
            length: Default::default(),
            gap: Default::default(),
        },
        replicas: addresses.len(),
    };
    let policies = session.run(&course, args.load.warmup)?;
    let report = Report {
        origin: Origin::Measured(Machine::read()),
        heading: Vec::new(),
        started,
        seed: args.load.seed,
        parameters: parameters::of_load(args, session.clock),
        policies,
        regime: session.regime(),
        interrupted: interrupt.asked(),
        failures: session.live.failures.sentences(&addresses, &[]),
        notes: session.live.notes,
    };
    publish(&report, folder.as_ref())
}
