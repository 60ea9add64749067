//! What the machine finds worth a line in a log.

use tracing::{info, warn};

use super::shell::Shell;
use crate::core::{Notice, OffReason};

/// Writes down what has changed since the last look.
pub(super) fn log(shell: &Shell) {
    loop {
        let notice = shell.state.borrow_mut().calls.poll_notice();
        match notice {
            None => return,
            Some(Notice::SwitchedOff { method, policy, reason: OffReason::Excess }) => warn!(
                method = method.0,
                ?policy,
                "far more calls are slow than the percentile implies: hedging is off for a while"
            ),
            Some(Notice::SwitchedOff { method, policy, reason }) => {
                warn!(method = method.0, ?policy, ?reason, "hedging is off for a while");
            }
            Some(Notice::SwitchedOn { method, policy }) => {
                info!(method = method.0, ?policy, "hedging is on again, on probation");
            }
            Some(Notice::Ejected { replica }) => {
                warn!(replica = replica.0, "ejected: it fails again and again");
            }
            Some(Notice::Readmitted { replica }) => {
                info!(replica = replica.0, "readmitted: it does its work again");
            }
        }
    }
}
