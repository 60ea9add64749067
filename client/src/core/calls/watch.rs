//! Policies that are only thought of: see [`shadow`](crate::core::shadow).

use bowline_time::Instant;

use super::Calls;
use crate::core::config::ConfigError;
use crate::core::policy::PolicyId;
use crate::core::shadow::{Candidate, Shadowed, shadowed};
use crate::core::tie;

impl<P> Calls<P> {
    /// From now on tells, of the calls of this policy that have one copy and could have had two,
    /// what each of these candidates would have done. None of them sends anything.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range; nothing has changed then.
    pub fn shadow(&mut self, id: PolicyId, candidates: &[Candidate]) -> Result<(), ConfigError> {
        let shadowed = shadowed(candidates)?;
        let same = self.shadows(id).iter().map(|one| &one.candidate).eq(candidates);
        if !same {
            self.policies.set_shadows(id, shadowed);
            self.methods.forget_shadows(id.0);
        }
        Ok(())
    }

    /// What the candidates of a policy would have done so far.
    pub fn shadows(&self, id: PolicyId) -> &[Shadowed] {
        self.policies.shadows(id.0)
    }

    /// The call is done. If it had one copy, its candidates are asked what they would have done.
    pub(super) fn think_of_others(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get(slot);
        if self.policies.shadows(call.name).is_empty() {
            return;
        }
        if call.sent != 1 || call.len != 1 || !call.idempotent || call.single || call.from_extra {
            return;
        }
        let (name, class, copy) = (call.name, call.class, call.copies[0]);
        let rtt = self.replicas.get(copy.replica).rtt;
        let second = self.methods.latest_elsewhere(class, copy.replica);
        for (at, shadow) in self.policies.shadows_mut(name).iter_mut().enumerate() {
            let delay = match &shadow.candidate {
                Candidate::Hedge(delay) => self.methods.thought(class, name, at, delay, now),
                Candidate::Tie(stagger) => Some(tie::stagger(*stagger, rtt)),
            };
            if let Some(delay) = delay {
                shadow.see(delay, now - copy.sent, second);
            }
        }
    }
}
