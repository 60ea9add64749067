//! The cluster of a simulation, from the options that describe it.

use core::time::Duration;

use bowline_client::core::{BudgetConfig, Policy};
use bowline_protocol::LinkConfig;
use bowline_tests::kernel::span::{Nanos, Span};
use bowline_tests::world::{Class, ClientSetup, Look, Scenario, ServerSetup, Service};
use thiserror::Error;

use crate::cli::{Copies, Offered, WorldArgs};
use crate::model::{Model, ModelError};
use crate::units::{show_duration, three_digits};

/// The world ends after this time of its own.
const LONGEST: Duration = Duration::from_secs(9_000);
/// Messages take no longer than this on average.
const FARTHEST: Duration = Duration::from_millis(100);

/// Why there is no such cluster.
#[derive(Debug, Error)]
pub enum SettingError {
    /// A file of service times.
    #[error("--service: {0}")]
    Model(#[from] ModelError),
    /// What options say together cannot be.
    #[error("{0}")]
    Together(String),
}

/// A cluster and its load.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How it was described.
    pub args: WorldArgs,
    /// How long replicas serve.
    pub model: Model,
    /// Calls a second.
    pub rate: f64,
}

impl Setting {
    /// Reads the files, and works out the rate.
    ///
    /// # Errors
    /// [`SettingError`], in the words of the options.
    pub fn new(args: &WorldArgs, offered: Offered, calls: u32) -> Result<Self, SettingError> {
        let model = args.service.load()?;
        let mean = model.mean() / 1e9;
        let slots = f64::from(args.replicas.get()) * f64::from(args.slots.get());
        let rate = match offered {
            Offered::Rate(rate) => rate,
            Offered::Load(load) if load > 0.0 && mean > 0.0 => load * slots / mean,
            Offered::Load(_) => {
                return together("--load needs a service time above zero, and must be above 0%");
            }
        };
        if let Model::Trace(trace) = &model {
            if trace.replicas() < args.replicas.get() as usize {
                let (seen, wanted) = (trace.replicas(), args.replicas);
                return together(format!(
                    "--service: --replicas is {wanted}: give at most {seen}, for the trace is about \
                     no more"
                ));
            }
            if args.copies == Copies::Identical {
                return together(
                    "--copies identical: a trace says what each replica took, so that copies have \
                     times of their own; leave the option out",
                );
            }
        }
        let lasts = f64::from(calls) / rate;
        if lasts > LONGEST.as_secs_f64() {
            return together(format!(
                "--calls {calls} at {} a second last {} s, and a simulation at most {}: change \
                 --calls, --rate or --load",
                three_digits(rate),
                three_digits(lasts),
                show_duration(LONGEST)
            ));
        }
        if args.network.mean() > FARTHEST.as_nanos() as f64 {
            return together(format!("--network: at most {} on average", show_duration(FARTHEST)));
        }
        Ok(Setting { args: args.clone(), model, rate })
    }

    /// The share of time for which slots are busy if every call runs once.
    pub fn load(&self) -> f64 {
        let slots = f64::from(self.args.replicas.get()) * f64::from(self.args.slots.get());
        self.rate * self.model.mean() / 1e9 / slots
    }

    /// How long so many calls take to come.
    pub fn lasts(&self, calls: u64) -> Duration {
        Duration::from_secs_f64(calls as f64 / self.rate)
    }

    /// The world: one frontend that makes so many calls under a policy, with nothing that goes
    /// wrong.
    pub fn scenario(
        &self,
        seed: u64,
        calls: u64,
        policy: Policy,
        budget: BudgetConfig,
    ) -> Scenario {
        let args = &self.args;
        let (span, trace) = match &self.model {
            Model::Span(span) => (span.clone(), None),
            Model::Trace(trace) => (Span::Fixed(0), Some(trace.clone())),
        };
        Scenario {
            servers: args.replicas.get() as usize,
            server: ServerSetup {
                slots: args.slots.get(),
                queue: args.queue.get(),
                tombstones: 4096,
            },
            client: ClientSetup {
                max_calls: 1 << 16,
                watch: Duration::from_secs(10),
                latency_window: Duration::from_secs(10),
            },
            calls,
            gap: Span::Exponential { mean: ((1e9 / self.rate) as Nanos).max(1) },
            deadline: Span::Fixed(args.deadline.as_nanos() as Nanos),
            classes: vec![Class::with(policy)],
            service: Service {
                span,
                trace,
                identical: args.copies == Copies::Identical,
                look: if args.interruptible { Look::AtOnce } else { Look::Never },
                error_permille: 0,
            },
            delay: args.network.clone(),
            warm_up: self.warm_up(),
            pick: args.pick.rule(),
            load_lifetime: 100_000_000,
            budget,
            link: LinkConfig::default(),
            settle: 1_000_000_000,
            ..Scenario::calm(seed)
        }
    }

    /// Time until everybody is connected.
    pub fn warm_up(&self) -> Nanos {
        10_000_000 + (20.0 * self.args.network.mean()) as Nanos
    }
}

fn together<T>(what: impl Into<String>) -> Result<T, SettingError> {
    Err(SettingError::Together(what.into()))
}
