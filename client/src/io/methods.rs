//! What the configuration says of each method, on one core.

use std::time::Duration;

use bowline_protocol::{Freshness, Method, TrafficClass};

use super::config::MethodConfig;
use crate::core::{Calls, ConfigError, PolicyId};

/// What holds for a call that says nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    pub(super) policy: PolicyId,
    pub(super) idempotent: bool,
    pub(super) deadline: Duration,
    pub(super) fresh: Option<Freshness>,
}

impl Defaults {
    fn of(policy: PolicyId, of: &MethodConfig) -> Defaults {
        let fresh = of.max_staleness.map(Freshness::within);
        Defaults { policy, idempotent: of.idempotent, deadline: of.deadline, fresh }
    }
}

#[derive(Debug)]
struct Known {
    method: Method,
    class: Option<TrafficClass>,
    defaults: Defaults,
    /// The configuration has it still.
    current: bool,
}

/// The methods of the configuration.
#[derive(Debug, Default)]
pub(super) struct Methods {
    known: Vec<Known>,
}

impl Methods {
    /// What holds for calls of that method and class; what is said of a class goes before what is
    /// said of the method.
    pub(super) fn find(&self, method: Method, class: Option<TrafficClass>) -> Defaults {
        let is = |known: &&Known| known.current && known.method == method;
        let mut of_method = self.known.iter().filter(is);
        let exact = class.and_then(|_| of_method.clone().find(|known| known.class == class));
        let found = exact.or_else(|| of_method.find(|known| known.class.is_none()));
        found.map_or_else(Defaults::default, |known| known.defaults)
    }

    /// Follows another configuration. Calls that are under way go on as they began. All of it was
    /// validated; what is refused nevertheless stays as it was, and the first such is returned.
    pub(super) fn follow<P>(
        &mut self,
        methods: &[(Method, MethodConfig)],
        calls: &mut Calls<P>,
    ) -> Result<(), ConfigError> {
        self.known.iter_mut().for_each(|known| known.current = false);
        let mut refused = Ok(());
        for (method, of) in methods {
            let done = self.follow_one(*method, of, calls);
            if refused.is_ok() {
                refused = done;
            }
        }
        for gone in self.known.iter().filter(|known| !known.current) {
            calls.end_trial(gone.defaults.policy);
        }
        refused
    }

    fn follow_one<P>(
        &mut self,
        method: Method,
        of: &MethodConfig,
        calls: &mut Calls<P>,
    ) -> Result<(), ConfigError> {
        let same = |known: &&mut Known| known.method == method && known.class == of.class;
        let policy = match self.known.iter_mut().find(same) {
            Some(known) => {
                known.current = true;
                known.defaults = Defaults::of(known.defaults.policy, of);
                known.defaults.policy
            }
            None => {
                let policy = calls.register(of.policy)?;
                let defaults = Defaults::of(policy, of);
                self.known.push(Known { method, class: of.class, defaults, current: true });
                policy
            }
        };
        // A trial of the same policy goes on; `replace` would end it, or make it the rule.
        if calls.policy(policy) != Some(&of.policy) {
            calls.replace(policy, of.policy)?;
        }
        calls.classify(policy, of.classifier.clone());
        calls.limit_copies(policy, of.limits)?;
        calls.limit(policy, of.budget.clone())?;
        match &of.canary {
            Some(canary) => calls.try_out(policy, canary.policy, canary.share)?,
            None => calls.end_trial(policy),
        }
        calls.shadow(policy, &of.shadow)
    }

    /// Those of the configuration, with their policies.
    pub(super) fn policies(
        &self,
    ) -> impl Iterator<Item = (Method, Option<TrafficClass>, PolicyId)> {
        let current = self.known.iter().filter(|known| known.current);
        current.map(|known| (known.method, known.class, known.defaults.policy))
    }

    /// The policy of a method of the configuration.
    pub(super) fn policy(&self, method: Method, class: Option<TrafficClass>) -> Option<PolicyId> {
        let is = |known: &&Known| known.method == method && known.class == class;
        self.known.iter().find(is).map(|known| known.defaults.policy)
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults::of(PolicyId::NONE, &MethodConfig::default())
    }
}
