//! The policies that calls follow, which change while calls run.
//!
//! A name ([`PolicyId`]) stands for one policy, and while another is on trial for two. A call draws
//! one of them when it begins and keeps it to its end; a policy that was replaced is forgotten when
//! the last call that follows it has ended. All of this belongs to one core: nothing is locked, and
//! a new configuration is handed to each core, which puts it in place between two calls.

use core::time::Duration;
use std::sync::Arc;

use bowline_time::Instant;
use hdrhistogram::Histogram;

use super::budget::{Budget, Purse};
use super::classify::Classifier;
use super::config::{ConfigError, Limits, check};
use super::latency;
use super::policy::{Policy, PolicyId};
use super::random::Random;
use super::shadow::Shadowed;

/// How many policies may be there at a time, those included that calls still follow after they were
/// replaced.
const MOST: usize = 1024;

/// Names and what they stand for.
#[derive(Debug)]
pub(crate) struct Policies {
    names: Vec<Name>,
    versions: Vec<Version>,
}

#[derive(Debug)]
struct Name {
    classifier: Classifier,
    /// None: there is nothing of its own to say.
    limits: Option<Limits>,
    stable: u16,
    trial: Option<Box<Running>>,
    /// Policies that are only thought of.
    shadows: Vec<Shadowed>,
}

/// One policy, as it was registered.
#[derive(Debug)]
struct Version {
    policy: Policy,
    /// What pays for extra copies besides the client's own budget, and what this core earned for it.
    budget: Option<Arc<Budget>>,
    purse: Purse,
    /// Calls that follow it.
    calls: u32,
    /// A name stands for it.
    named: bool,
}

#[derive(Debug)]
struct Running {
    version: u16,
    /// Of 2^32 calls.
    share: u64,
    trial: Trial,
}

/// What calls have done since a policy was put on trial: those that follow it, and the others.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Calls that follow the policy that was there before.
    pub stable: Figures,
    /// Calls that follow the policy on trial.
    pub canary: Figures,
}

/// What the calls of one policy have done. Calls that were cancelled are not among them.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Calls that got a good reply.
    pub ok: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Copies that they sent.
    pub attempts: u64,
    /// Hedges among those.
    pub hedges: u64,
    /// Calls whose result was a hedge's reply.
    pub hedge_wins: u64,
    /// What the calls took, in nanoseconds, those included that failed.
    pub latency: Histogram<u64>,
}

/// How a call ended, for the figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) ok: bool,
    pub(crate) attempts: u8,
    pub(crate) hedges: u8,
    pub(crate) hedge_won: bool,
    pub(crate) latency: Duration,
}

impl Name {
    fn new(classifier: Classifier, stable: u16) -> Name {
        let (limits, trial, shadows) = (None, None, Vec::new());
        Name { classifier, limits, stable, trial, shadows }
    }
}

impl Version {
    fn new(policy: Policy, budget: Option<Arc<Budget>>) -> Version {
        Version { policy, budget, purse: Purse::default(), calls: 0, named: true }
    }

    fn is(&self, policy: &Policy, budget: Option<&Arc<Budget>>) -> bool {
        let same = match (&self.budget, budget) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        same && self.policy == *policy
    }
}

impl Figures {
    fn new() -> Figures {
        let latency = latency::histogram();
        Figures { ok: 0, failed: 0, attempts: 0, hedges: 0, hedge_wins: 0, latency }
    }

    fn count(&mut self, ended: &Ended) {
        self.ok += u64::from(ended.ok);
        self.failed += u64::from(!ended.ok);
        self.attempts += u64::from(ended.attempts);
        self.hedges += u64::from(ended.hedges);
        self.hedge_wins += u64::from(ended.hedge_won);
        latency::record(&mut self.latency, ended.latency);
    }
}

impl Policies {
    /// [`PolicyId::NONE`] alone.
    pub(crate) fn new() -> Policies {
        let version = Version::new(Policy::None, None);
        let classifier = Classifier::default();
        let name = Name::new(classifier, 0);
        Policies { names: vec![name], versions: vec![version] }
    }

    /// A new name for this policy.
    pub(crate) fn register(
        &mut self,
        policy: Policy,
        classifier: Classifier,
    ) -> Result<(PolicyId, u16), ConfigError> {
        let stable = self.put(policy, None)?;
        self.names.push(Name::new(classifier, stable));
        Ok((PolicyId((self.names.len() - 1) as u16), stable))
    }

    /// The name stands for this policy from now on, and a trial is over. Returns the place that is
    /// new; None if nothing is: the name is not known, or stands for that policy already.
    pub(crate) fn replace(
        &mut self,
        id: PolicyId,
        policy: Policy,
    ) -> Result<Option<u16>, ConfigError> {
        let budget =
            self.names.get(usize::from(id.0)).map(|name| self.version(name.stable).budget.clone());
        self.change(id, policy, budget.flatten())
    }

    /// The name's calls pay for extra copies out of this budget, too, or out of none.
    pub(crate) fn limit(
        &mut self,
        id: PolicyId,
        budget: Option<Arc<Budget>>,
    ) -> Result<Option<u16>, ConfigError> {
        let known = usize::from(id.0) < self.names.len();
        check("budget.policy", id.0, known && id != PolicyId::NONE, "one that was registered")?;
        let stable = self.version(self.names[usize::from(id.0)].stable);
        if stable.is(&stable.policy, budget.as_ref()) {
            return Ok(None);
        }
        self.change(id, stable.policy, budget)
    }

    fn change(
        &mut self,
        id: PolicyId,
        policy: Policy,
        budget: Option<Arc<Budget>>,
    ) -> Result<Option<u16>, ConfigError> {
        policy.validate()?;
        let Some(name) = self.names.get(usize::from(id.0)) else { return Ok(None) };
        if self.version(name.stable).is(&policy, budget.as_ref()) {
            self.end_trial(id);
            return Ok(None);
        }
        let trial = name.trial.as_ref().map(|running| running.version);
        let same = |&trial: &u16| self.version(trial).is(&policy, budget.as_ref());
        let new = match trial.filter(same) {
            // What was on trial has what it learned.
            Some(trial) => trial,
            None => self.put(policy, budget)?,
        };
        self.versions[usize::from(new)].named = true;
        let name = &mut self.names[usize::from(id.0)];
        let old = core::mem::replace(&mut name.stable, new);
        name.trial = None;
        self.unname(old);
        if let Some(trial) = trial.filter(|&trial| trial != new) {
            self.unname(trial);
        }
        Ok((trial != Some(new)).then_some(new))
    }

    /// A share of the name's calls follows another policy from now on. Returns its place, if it is
    /// new.
    pub(crate) fn try_out(
        &mut self,
        id: PolicyId,
        policy: Policy,
        share: f64,
    ) -> Result<Option<u16>, ConfigError> {
        policy.validate()?;
        check("canary.share", share, (0.0..=1.0).contains(&share), "0 to 1")?;
        let known = usize::from(id.0) < self.names.len();
        check("canary.policy", id.0, known && id != PolicyId::NONE, "one that was registered")?;
        let share = (share * 2f64.powi(32)) as u64;
        if let Some(running) = &mut self.names[usize::from(id.0)].trial
            && self.versions[usize::from(running.version)].policy == policy
        {
            running.share = share;
            return Ok(None);
        }
        let budget = self.version(self.names[usize::from(id.0)].stable).budget.clone();
        let version = self.put(policy, budget)?;
        self.end_trial(id);
        let trial = Trial { stable: Figures::new(), canary: Figures::new() };
        let running = Running { version, share, trial };
        self.names[usize::from(id.0)].trial = Some(Box::new(running));
        Ok(Some(version))
    }

    /// All of the name's calls follow its own policy again.
    pub(crate) fn end_trial(&mut self, id: PolicyId) {
        let running = self.names.get_mut(usize::from(id.0)).and_then(|name| name.trial.take());
        if let Some(running) = running {
            self.unname(running.version);
        }
    }

    /// What a policy on trial has done so far.
    pub(crate) fn trial(&self, id: PolicyId) -> Option<&Trial> {
        Some(&self.names.get(usize::from(id.0))?.trial.as_ref()?.trial)
    }

    /// The policy that a call follows which begins now. `call` is its own number, the same in every
    /// run.
    pub(crate) fn enter(&mut self, id: PolicyId, call: u64) -> (u16, u16) {
        let id = self.known(id);
        let name = &self.names[usize::from(id)];
        let version = match &name.trial {
            Some(running) if Random::new(call).next() >> 32 < running.share => running.version,
            _ => name.stable,
        };
        self.versions[usize::from(version)].calls += 1;
        (id, version)
    }

    /// The name, or [`PolicyId::NONE`] if there is none such.
    pub(crate) fn known(&self, id: PolicyId) -> u16 {
        if usize::from(id.0) < self.names.len() { id.0 } else { PolicyId::NONE.0 }
    }

    /// A call that followed it has ended, with its last copy.
    pub(crate) fn leave(&mut self, version: u16) {
        self.versions[usize::from(version)].calls -= 1;
    }

    /// A call got its result.
    pub(crate) fn count(&mut self, name: u16, version: u16, ended: &Ended) {
        let name = &mut self.names[usize::from(name)];
        let Some(running) = &mut name.trial else { return };
        if version == running.version {
            running.trial.canary.count(ended);
        } else if version == name.stable {
            running.trial.stable.count(ended);
        }
    }

    pub(crate) fn policy(&self, version: u16) -> &Policy {
        &self.version(version).policy
    }

    pub(crate) fn stable(&self, id: PolicyId) -> Option<&Policy> {
        self.stable_version(id).map(|version| self.policy(version))
    }

    /// What that name stands for; None if it was not registered.
    pub(crate) fn stable_version(&self, id: PolicyId) -> Option<u16> {
        self.names.get(usize::from(id.0)).map(|name| name.stable)
    }

    /// The policy's own budget, if it has one.
    pub(crate) fn budget(&self, version: u16) -> Option<&Budget> {
        self.version(version).budget.as_deref()
    }

    /// The same, with what time has earned it.
    pub(crate) fn purse(&mut self, version: u16, now: Instant) -> Option<&Budget> {
        let Version { budget, purse, .. } = &mut self.versions[usize::from(version)];
        let budget = budget.as_deref()?;
        purse.on_time(budget, now);
        Some(budget)
    }

    /// A call of that policy succeeded.
    pub(crate) fn earn(&mut self, version: u16) {
        let Version { budget, purse, .. } = &mut self.versions[usize::from(version)];
        if let Some(budget) = budget {
            purse.on_success(budget);
        }
    }

    /// A call of that policy failed, and not by a fault of its own.
    pub(crate) fn lose(&mut self, version: u16) {
        let Version { budget, purse, .. } = &mut self.versions[usize::from(version)];
        if let Some(budget) = budget {
            purse.on_failure(budget);
        }
    }

    /// The name's replies are judged by this from now on.
    pub(crate) fn classify(&mut self, id: PolicyId, classifier: Classifier) {
        if let Some(name) = self.names.get_mut(usize::from(id.0)) {
            name.classifier = classifier;
        }
    }

    /// The name's calls are bounded by these from now on.
    pub(crate) fn limit_copies(&mut self, id: PolicyId, limits: Limits) {
        if let Some(name) = self.names.get_mut(usize::from(id.0)) {
            name.limits = Some(limits);
        }
    }

    /// What bounds the copies of calls that follow `name` in place of another.
    pub(crate) fn limits(&self, name: u16, instead_of: u16) -> Limits {
        let [own, others] = [name, instead_of].map(|name| self.names[usize::from(name)].limits);
        own.or(others).unwrap_or_default()
    }

    /// What judges the replies to calls that follow `name` in place of another.
    pub(crate) fn classifier(&self, name: u16, instead_of: u16) -> &Classifier {
        let [own, others] =
            [name, instead_of].map(|name| &self.names[usize::from(name)].classifier);
        own.or(others)
    }

    pub(crate) fn set_shadows(&mut self, id: PolicyId, shadows: Vec<Shadowed>) {
        if let Some(name) = self.names.get_mut(usize::from(id.0)) {
            name.shadows = shadows;
        }
    }

    pub(crate) fn shadows(&self, name: u16) -> &[Shadowed] {
        self.names.get(usize::from(name)).map_or(&[], |name| &name.shadows)
    }

    pub(crate) fn shadows_mut(&mut self, name: u16) -> &mut [Shadowed] {
        self.names.get_mut(usize::from(name)).map_or(&mut [], |name| &mut name.shadows)
    }

    fn version(&self, version: u16) -> &Version {
        &self.versions[usize::from(version)]
    }

    /// A place for one more policy; one that nobody follows any more is used again.
    fn put(&mut self, policy: Policy, budget: Option<Arc<Budget>>) -> Result<u16, ConfigError> {
        policy.validate()?;
        let version = Version::new(policy, budget);
        let free = self.versions.iter().position(|old| !old.named && old.calls == 0);
        if let Some(at) = free {
            self.versions[at] = version;
            return Ok(at as u16);
        }
        check("policies", self.versions.len() + 1, self.versions.len() < MOST, "up to 1024")?;
        self.versions.push(version);
        Ok((self.versions.len() - 1) as u16)
    }

    fn unname(&mut self, version: u16) {
        self.versions[usize::from(version)].named = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hedged(hedges: u8) -> Policy {
        Policy::Hedged(super::super::HedgePolicy {
            max_hedges: hedges,
            ..super::super::HedgePolicy::default()
        })
    }

    #[test]
    fn a_call_keeps_its_policy_while_its_name_goes_over_to_another() {
        let mut policies = Policies::new();
        let (id, _) = policies.register(hedged(1), Classifier::default()).unwrap();
        let (_, old) = policies.enter(id, 1);
        policies.replace(id, hedged(2)).unwrap().unwrap();
        let (_, new) = policies.enter(id, 2);
        assert_eq!((policies.policy(old), policies.policy(new)), (&hedged(1), &hedged(2)));
    }

    #[test]
    fn a_thousand_changes_need_no_more_places_than_calls_still_follow() {
        let mut policies = Policies::new();
        let (id, _) = policies.register(hedged(1), Classifier::default()).unwrap();
        let (_, first) = policies.enter(id, 1);
        for round in 0..5_000u16 {
            let (_, version) = policies.enter(id, 2);
            policies.replace(id, hedged(2 + (round % 2) as u8)).unwrap().unwrap();
            policies.leave(version);
        }
        assert_eq!(policies.policy(first), &hedged(1));
        assert!(policies.versions.len() <= 5, "{}", policies.versions.len());
    }

    #[test]
    fn the_same_policy_again_changes_nothing() {
        let mut policies = Policies::new();
        let (id, stable) = policies.register(hedged(1), Classifier::default()).unwrap();
        assert_eq!(policies.replace(id, hedged(1)), Ok(None));
        assert_eq!(policies.enter(id, 1).1, stable);
    }

    #[test]
    fn a_share_of_the_calls_tries_another_policy_and_the_same_ones_in_every_run() {
        let mut policies = Policies::new();
        let (id, stable) = policies.register(hedged(1), Classifier::default()).unwrap();
        let canary = policies.try_out(id, hedged(2), 0.1).unwrap().unwrap();
        let drawn: Vec<u16> = (0..10_000).map(|call| policies.enter(id, call).1).collect();
        let share = drawn.iter().filter(|&&version| version == canary).count();
        assert!((900..1100).contains(&share), "{share}");
        assert!(drawn.iter().all(|&version| version == canary || version == stable));
        let again: Vec<u16> = (0..10_000).map(|call| policies.enter(id, call).1).collect();
        assert_eq!(drawn, again);
        policies.end_trial(id);
        assert!((0..1000).all(|call| policies.enter(id, call).1 == stable));
    }

    #[test]
    fn what_was_on_trial_takes_over_with_what_it_learned() {
        let mut policies = Policies::new();
        let (id, _) = policies.register(hedged(1), Classifier::default()).unwrap();
        let canary = policies.try_out(id, hedged(2), 0.1).unwrap().unwrap();
        assert_eq!(policies.replace(id, hedged(2)), Ok(None), "nothing there is new");
        assert_eq!(policies.enter(id, 1).1, canary);
        assert!(policies.trial(id).is_none());
    }

    #[test]
    fn figures_of_both_are_kept_apart_and_of_no_others() {
        let mut policies = Policies::new();
        let (id, stable) = policies.register(hedged(1), Classifier::default()).unwrap();
        let canary = policies.try_out(id, hedged(2), 0.5).unwrap().unwrap();
        let latency = Duration::from_millis(1);
        let ended = Ended { ok: true, attempts: 2, hedges: 1, hedge_won: true, latency };
        policies.count(id.0, stable, &Ended { ok: false, ..ended });
        policies.count(id.0, canary, &ended);
        policies.count(id.0, canary, &ended);
        policies.count(id.0, 0, &ended);
        let Trial { stable, canary } = policies.trial(id).unwrap();
        assert_eq!((stable.ok, stable.failed, stable.latency.len()), (0, 1, 1));
        assert_eq!((canary.ok, canary.failed, canary.hedge_wins), (2, 0, 2));
        assert_eq!((canary.attempts, canary.hedges), (4, 2));
    }

    #[test]
    fn a_trial_of_more_than_all_or_of_a_plain_call_is_refused_by_name() {
        let mut policies = Policies::new();
        let (id, _) = policies.register(hedged(1), Classifier::default()).unwrap();
        let error = policies.try_out(id, hedged(2), 1.5).unwrap_err();
        assert_eq!(error.to_string(), "canary.share is 1.5, but must be 0 to 1");
        let error = policies.try_out(PolicyId::NONE, hedged(2), 0.5).unwrap_err();
        assert_eq!(error.field, "canary.policy");
    }
}
